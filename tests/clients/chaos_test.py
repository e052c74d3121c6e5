#!/usr/bin/env python3
"""Random clients for a while: good requests, bad ones, clients that leave at any moment. Afterwards the server answers,
has lost nothing, and ends clean.

Usage: chaos_test.py BUILD SOURCE [--seconds S] [--seed N] [--clients N]
Run it against a build with sanitizers (build/dev) for longer: an error of theirs ends the server, and so the test.
"""
import argparse
import asyncio
import collections
import json
import random
import sys
import time

import http_client
from server_process import Server

MOST_GROWTH_BYTES = 200 * 10**6
REPLY_TIMEOUT_S = 120
TOOL = {"type": "function", "function": {"name": "save", "parameters": {"properties": {"key": {}, "value": {}}}}}
USE_TOOL = [*http_client.CONVERSATION[:2], {"role": "user", "content": "so save the code of [bakoru] with the tool."}]

GOOD = ["/v1/chat/completions", "/v1/completions", "/tokenize", "/plumb/render"]
BAD_FIELDS = {"temperature": [-1, "hot"], "top_p": [0, 2], "n": [0, 10**6], "max_tokens": [-1, 10**12], "stop": [[1], ""],
              "logit_bias": [{"x": 1}, 3], "tools": [3, [{}]], "tool_choice": ["required", 5], "reasoning_effort": ["lots", 1],
              "messages": [[], 3, [{"role": "robot", "content": "x"}]], "plumb": [{"switches": {"nope": "on"}}, 1],
              "stream_options": [{"include_usage": 1}], "logprobs": ["x"], "seed": [1.5]}


def good_body(rng, path):
    if path == "/v1/completions":
        return {"prompt": "<｜User｜>so what is the code of [bakoru]?<｜Assistant｜></think>", "max_tokens": rng.randint(1, 20),
                "logprobs": rng.choice([None, 0, 5]), "n": rng.randint(1, 3), "stream": rng.random() < 0.5}
    body = http_client.recall(stream=rng.random() < 0.5, n=rng.randint(1, 2))
    if rng.random() < 0.3:
        body.update(messages=USE_TOOL, tools=[TOOL])
    if rng.random() < 0.3:
        body.update(temperature=2, presence_penalty=0.5, logit_bias={"30": 5}, min_p=0.01)
    if rng.random() < 0.3:
        body["plumb"] = {"switches": {rng.choice(["prefix_cache", "chat.incremental_render", "prefill.chunked"]): "off"}}
    return body


class Chaos:
    def __init__(self, port, seed):
        self.port, self.seed = port, seed
        self.seen = collections.Counter()

    async def send(self, data):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    def check(self, what, reply, statuses):
        assert reply is not None, f"{what}: closed without a reply"
        assert reply.status in statuses, f"{what}: {reply.status} {reply.body[:300]}"
        if reply.status >= 400:
            error = json.loads(reply.body)["error"]
            assert error["message"] and error["code"], reply.body
        self.seen[f"{what} {reply.status}"] += 1

    async def finish(self, what, data, statuses):
        reader, writer = await self.send(data)
        try:
            self.check(what, await asyncio.wait_for(http_client.read_reply(reader), REPLY_TIMEOUT_S), statuses)
        finally:
            writer.close()

    async def good(self, rng):
        path = rng.choice(GOOD)
        await self.finish("good", http_client.request_bytes("POST", path, good_body(rng, path)), {200, 503})

    async def right(self, rng):
        reply = await http_client.request(self.port, "POST", "/v1/chat/completions", http_client.recall(), REPLY_TIMEOUT_S)
        self.check("right", reply, {200, 503})
        if reply.status == 200:
            assert reply.json()["choices"][0]["message"]["content"] == http_client.ANSWER, reply.body

    async def bad_field(self, rng):
        body = good_body(rng, "/v1/chat/completions")
        name = rng.choice(list(BAD_FIELDS))
        body[name] = rng.choice(BAD_FIELDS[name])
        if name == "stream_options":
            body["stream"] = True
        if name == "tool_choice":
            body.pop("tools", None)  # with them "required" is good
        await self.finish("bad field", http_client.request_bytes("POST", "/v1/chat/completions", body), {400})

    async def bad_body(self, rng):
        body = bytearray(json.dumps(good_body(rng, "/v1/chat/completions")).encode())
        for _ in range(rng.randint(1, 5)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        await self.finish("bad body", http_client.request_bytes("POST", rng.choice(GOOD), bytes(body)), {200, 400, 503})

    async def wrong_place(self, rng):
        method, path = rng.choice([("GET", "/v1/completions"), ("POST", "/health"), ("PUT", "/"), ("GET", "/nothing")])
        await self.finish("wrong place", http_client.request_bytes(method, path), {404, 405})

    async def noise(self, rng):
        data = rng.randbytes(rng.randint(1, 3000)) + rng.choice([b"", b"\r\n\r\n"])
        reader, writer = await self.send(data)
        try:
            writer.write_eof()
            await asyncio.wait_for(reader.read(-1), REPLY_TIMEOUT_S)
        except ConnectionError:
            pass
        finally:
            writer.close()
        self.seen["noise"] += 1

    async def leaves(self, rng):
        path = rng.choice(GOOD)
        body = good_body(rng, path)
        body["max_tokens"] = 500
        body["ignore_eos"] = True
        data = http_client.request_bytes("POST", path, body)
        if rng.random() < 0.3:
            data = data[:rng.randrange(1, len(data))]
        reader, writer = await self.send(data)
        try:
            await asyncio.wait_for(reader.read(rng.choice([1, 200, 5000])), rng.random() * 0.3)
        except (asyncio.TimeoutError, ConnectionError):
            pass
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
        self.seen["leaves"] += 1

    async def reads_slowly(self, rng):
        body = http_client.recall(stream=True, ignore_eos=True, max_tokens=200, logprobs=True, top_logprobs=20)
        reader, writer = await self.send(http_client.request_bytes("POST", "/v1/chat/completions", body))
        try:
            for _ in range(5):
                await reader.read(64)
                await asyncio.sleep(0.02)
        finally:
            writer.close()
        self.seen["reads slowly"] += 1

    async def client(self, number, end):
        rng = random.Random(f"{self.seed} {number}")
        deeds = [self.good, self.right, self.bad_field, self.bad_body, self.wrong_place, self.noise, self.leaves,
                 self.leaves, self.reads_slowly]
        while time.monotonic() < end:
            await rng.choice(deeds)(rng)


async def run(server, args):
    await http_client.request(server.port, "POST", "/v1/chat/completions", http_client.recall(), REPLY_TIMEOUT_S)
    before = server.rss_bytes()
    chaos = Chaos(server.port, args.seed)
    end = time.monotonic() + args.seconds
    await asyncio.gather(*(chaos.client(i, end) for i in range(args.clients)))
    for _ in range(REPLY_TIMEOUT_S * 10):
        info = (await http_client.request(server.port, "GET", "/server_info")).json()["internal_states"][0]
        if info["running"] + info["waiting"] == 0:
            break
        await asyncio.sleep(0.1)
    assert info["running"] + info["waiting"] == 0, f"requests without a client go on: {info}"
    await chaos.right(None)
    growth = server.rss_bytes() - before
    print(f"seed {args.seed}, {args.seconds} s, {args.clients} clients: {dict(sorted(chaos.seen.items()))}; "
          f"{growth / 1e6:.1f} MB more")
    assert growth < args.most_growth_bytes, f"{growth / 1e6:.1f} MB"
    metrics = (await http_client.request(server.port, "GET", "/metrics")).body.decode()
    assert 'status="500"' not in metrics, metrics


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("source")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--most-growth-bytes", type=int, default=MOST_GROWTH_BYTES)
    args = parser.parse_args()
    with Server(args.build, args.source, "--max-queue", "24", "--max-context", "4096",
                "--pool-tokens", "16384") as server:
        try:
            asyncio.run(run(server, args))
        except BaseException:
            print(f"seed {args.seed}; the server said:\n{server.text()[-5000:]}")
            raise
        code = server.stop()
        assert code == 0, f"the server ended with {code}:\n{server.text()[-5000:]}"


sys.exit(main())
