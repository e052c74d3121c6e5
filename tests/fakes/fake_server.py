"""A model server that misbehaves on request, for tests of launches. Standard library only.

usage: fake_server.py PORT MODE [SECONDS]
"""
import json
import os
import signal
import socketserver
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = int(sys.argv[1]), sys.argv[2]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
START = time.monotonic()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if MODE == "hangs":
            time.sleep(3600)
        if MODE == "error500":
            return self.reply(500, {"error": {"message": "the weights melted"}})
        if self.path == "/v1/models":
            return self.reply(200, {"data": [{"id": "fake"}]})
        if self.path == "/environment":
            return self.reply(200, {"argv": sys.argv[1:], "env": dict(os.environ)})
        return self.reply(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "error500":
            return self.reply(500, {"error": {"message": "the weights melted"}})
        if MODE == "never_generates" or (MODE == "slow" and time.monotonic() - START < SECONDS):
            return self.reply(503, {"error": {"message": "still loading"}})
        if MODE == "wrong_json":
            return self.reply(200, {"choices": []})
        if MODE == "not_json":
            return self.reply(200, b"\xff{]")
        if request.get("model") != "fake":
            return self.reply(404, {"error": {"message": "no such model"}})
        chat = self.path == "/v1/chat/completions"
        choice = {"message": {"role": "assistant", "content": "x"}} if chat else {"text": "x"}
        return self.reply(200, {"choices": [choice]})


class Garbage(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"\x00\xffSSH-2.0-not-a-model-server\r\n\r\n" * 20)


def leave_a_daemon():
    """A grandchild in a session of its own, whose parent is gone: what a sloppy worker pool leaves behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()


print("fake server, mode", MODE, flush=True)
if MODE == "dies":
    sys.stderr.buffer.write(b"CUDA error: out of \xff\xfe memory\n")
    sys.exit(3)
if MODE == "crashes":
    os.kill(os.getpid(), signal.SIGSEGV)
if MODE == "never_listens":
    time.sleep(3600)
if MODE in ("leaves_a_child", "leaves_a_child_and_dies"):
    leave_a_daemon()
    if MODE == "leaves_a_child_and_dies":
        sys.exit(4)
if MODE == "ignores_term":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if MODE == "has_workers":
    subprocess.Popen(["sleep", "600"])
if MODE == "dies_later":
    signal.signal(signal.SIGALRM, lambda *_: (print("assertion failed: kv_heads", flush=True), os._exit(7)))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
if MODE == "listens_late":
    time.sleep(SECONDS)
ThreadingHTTPServer.allow_reuse_address = True
ThreadingHTTPServer.daemon_threads = True
if MODE == "garbage":
    socketserver.TCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer(("127.0.0.1", PORT), Garbage).serve_forever()
server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
Handler.log_message = lambda self, *arguments: None
print("listening", flush=True)
server.serve_forever()
