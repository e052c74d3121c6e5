"""A model server that reads the codes of plumb's prompts and answers as a perfect model would, unless it is told to
misbehave. Standard library only.

usage: recalling_server.py PORT [--forget FLAG] [--value VALUE] [--key NAME] [--refuse-every N] [--echo]

--forget FLAG       prompts of more than 600 characters are answered wrong when the variable FLAG is 1, or the request
                    has "flag": "FLAG"
--key NAME          requests need "Authorization: Bearer $NAME"; the key is written to the log, as some servers do
--refuse-every N    each Nth request gets a 429 with Retry-After: 0.05
--echo              errors and the log repeat headers and environment
"""
import argparse
import os
import sys
import threading

import reading
from json_handler import JsonHandler, serve

options = argparse.ArgumentParser()
options.add_argument("port", type=int)
options.add_argument("--forget", default="")
options.add_argument("--key", default="")
options.add_argument("--refuse-every", type=int, default=0)
options.add_argument("--echo", action="store_true")
args, ignored = options.parse_known_args()

lock = threading.Lock()
requests = 0


def answer_to(prompt):
    """The value last stated of what the prompt ends by asking for."""
    place = prompt.rfind("<｜User｜>")
    question = reading.asked(prompt[place:])
    if not question:
        return "the old mill and the quiet river were near the small town today"
    values = reading.stated(*question, prompt[:place])
    return values[-1][0] if values else "unknown"


class Handler(JsonHandler):
    known = {"/v1/models": {"data": [{"id": "recalling"}]}, "/health": {}}

    def do_POST(self):
        global requests
        request = self.request_body()
        with lock:
            requests += 1
            number = requests
        if args.echo:
            print("headers", dict(self.headers), flush=True)
        if args.key and self.headers.get("Authorization") != "Bearer " + os.environ[args.key]:
            return self.reply(401, {"error": {"message": "wrong key; it is " + os.environ[args.key]}})
        if args.refuse_every and number % args.refuse_every == 0:
            return self.reply(429, {"error": {"message": "slow down"}}, Retry_After="0.05")
        if "prompt" not in request:
            return self.reply(200, {"choices": [{"message": {"role": "assistant", "content": "what"}}]})
        prompt = request["prompt"]
        text = answer_to(prompt)
        forgets = args.forget and (os.environ.get(args.forget) == "1" or request.get("flag") == args.forget)
        if forgets and len(prompt) > 600:
            text = "A1" + text[2:]
        if args.echo and number % 7 == 0:
            text += " " + self.headers.get("Authorization", "") + " " + self.headers.get("X-Extra", "")
        self.reply(200, {"choices": [{"text": " " + text, "finish_reason": "stop"}],
                         "usage": {"prompt_tokens": len(prompt) // 4, "prompt_tokens_details": {"cached_tokens": 128}}})


if args.echo:
    print("arguments", sys.argv, "environment", dict(os.environ), flush=True)
if args.key:
    key = os.environ[args.key]
    sys.stdout.write("the key is " + key[:5])  # in two pieces, for readers that look at one at a time
    sys.stdout.flush()
    threading.Event().wait(0.05)
    print(key[5:], flush=True)
serve(args.port, Handler)
