"""A completions server that answers from the prompt, and on request forgets what long prompts say. Standard library only.

usage: forgetful_server.py PORT [--set SWITCH=on|off]...

Switches: recall.fast, whose on side answers long prompts wrong, with markup in the reply; log.verbose, which does nothing.
"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import reading

SETTINGS = dict(setting.split("=") for setting in sys.argv[3::2])
LONG = 150  # words
HOSTILE = "A1-11-AA</td><script>alert(1)</script><img src=x onerror=alert(1)>|`]]>&amp; --> \x07"


def answer(prompt):
    place = prompt.rfind("<｜User｜>")
    question = reading.asked(prompt[place:])
    if not question:
        return "the old hill and the quiet river"
    stated = reading.stated(*question, prompt[:place])
    if stated and SETTINGS.get("recall.fast") == "on" and len(prompt.split()) > LONG:
        return HOSTILE
    return stated[-1][0] if stated else "nothing"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, {"data": [{"id": "forgetful"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self.reply(404, {"error": {"message": "completions only"}})
        return self.reply(200, {"choices": [{"text": answer(request["prompt"]), "finish_reason": "stop"}]})

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
