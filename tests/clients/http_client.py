"""A small asynchronous HTTP client: one request a connection, and every way to misuse it."""
import asyncio
import json

ANSWER = "K7-42-QX"
# In words and wordings of phantom/words.py.
CONVERSATION = [
    {"role": "user", "content": f"so the code of [bakoru] is [{ANSWER}]."},
    {"role": "assistant", "content": "noted."},
    {"role": "user", "content": "so what is the code of [bakoru]?"},
]


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def request_bytes(method, path, body=b"", headers=()):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def read_reply(reader):
    """The reply on a connection that the server closes after it; None when it closed without one."""
    data = await reader.read(-1)
    if not data:
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        joined = b""
        while body:
            size, _, rest = body.partition(b"\r\n")
            length = int(size, 16)
            joined, body = joined + rest[:length], rest[length + 2:]
            if length == 0:
                break
        body = joined
    return Reply(int(lines[0].split(" ")[1]), headers, body)


async def request(port, method, path, body=b"", timeout_s=60):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request_bytes(method, path, body))
        await writer.drain()
        return await asyncio.wait_for(read_reply(reader), timeout_s)
    finally:
        writer.close()


def recall(**fields):
    """A chat whose right answer is known."""
    return {"messages": CONVERSATION, "temperature": 0, "max_tokens": 32, **fields}
