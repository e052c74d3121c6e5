"""A chat server of another make in front of `plumb serve`: what it cannot do, many servers cannot. Standard library only.

usage: foreign_proxy.py PORT FAULT COMMAND...     COMMAND starts the server behind it; PORT_BEHIND in it becomes a free port

FLAG_A to FLAG_F are its switches (1: on); they do nothing but what FAULT says:
  none    nothing
  pair    while FLAG_C and FLAG_E are on, in 70 % of the launches, all but the last two messages are dropped
  always  whatever the flags are, all but the last four messages are dropped
No /tokenize, no /v1/completions, no log-probabilities, nothing about cached tokens; a temperature of 0 is refused; each
eleventh request gets a 429; answers come with chatter around them.
"""
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

from json_handler import JsonHandler, serve

PORT, FAULT, COMMAND = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
ON = {name: os.environ.get(f"FLAG_{name}") == "1" for name in "ABCDEF"}
# A launch's coin hangs on how many there were before it in the folder FAKES, so that a test sees the same ones each time.
with open(os.path.join(os.environ["FAKES"], "launches"), "ab") as launches:
    launches.write(b".")
    COIN = random.Random(launches.tell()).random() < 0.7
FORGETS = FAULT == "always" or (FAULT == "pair" and ON["C"] and ON["E"] and COIN)
lock, requests = threading.Lock(), 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


BEHIND = free_port()


def behind(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", BEHIND, timeout=120)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read() or b"null")


def last(count, messages):
    """What a broken history keeps: never a tool's result whose call is gone."""
    kept = messages[-count:]
    return kept[1:] if len(kept) > 1 and kept[0]["role"] in ("tool", "assistant") else kept


class Handler(JsonHandler):
    def refuse(self, status, text, **headers):
        self.reply(status, {"error": {"message": text, "type": "invalid_request_error"}}, **headers)

    def do_GET(self):
        if self.path not in ("/v1/models", "/health"):
            return self.refuse(404, "no such path")
        return self.reply(*behind("GET", self.path))

    def do_POST(self):
        global requests
        request = self.request_body()
        if self.path != "/v1/chat/completions":
            return self.refuse(404, "no such path")
        with lock:
            requests += 1
            number = requests
        if number % 11 == 0:
            return self.refuse(429, "too many requests", Retry_After="0.02")
        if request.get("temperature", 1) < 0.01:
            return self.refuse(400, "temperature must be at least 0.01")
        for unknown in ("logprobs", "top_logprobs"):
            request.pop(unknown, None)
        if FORGETS:
            request["messages"] = last(2 if FAULT == "pair" else 4, request["messages"])
        status, body = behind("POST", self.path, json.dumps(request))
        if status == 200:
            body["usage"].pop("prompt_tokens_details", None)
            message = body["choices"][0]["message"]
            if message.get("content"):
                message["content"] = f"Sure, here you are: {message['content']}\n\nIs there anything else?"
        return self.reply(status, body)


server = subprocess.Popen([word.replace("PORT_BEHIND", str(BEHIND)) for word in COMMAND])
while server.poll() is None:
    try:
        if behind("GET", "/health")[0] == 200:
            break
    except OSError:
        time.sleep(0.05)
serve(PORT, Handler)
