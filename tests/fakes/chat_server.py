"""A chat server with a tokenizer and a chat template of its own, as a foreign engine has them. It answers what was stated
last, unless told to misbehave. Standard library only.

usage: chat_server.py PORT [--cut FLAG] [--forget FLAG] [--forget-in WORD FLAG] [--needs FLAG] [--no-usage] [--drift]

--cut FLAG             a code that lies across a multiple of 256 tokens is answered wrong when the variable FLAG is 1
--forget FLAG          prompts of more than 300 tokens are answered wrong when FLAG is 1
--forget-in WORD FLAG  so are conversations that hold WORD, which are told to be first messages, too
--needs FLAG           ends at the start unless FLAG is 1
--no-usage             says no counts
--drift                counts each prompt one higher than the one before
"""
import argparse
import os
import re
import sys

import reading
from json_handler import JsonHandler, serve

options = argparse.ArgumentParser()
options.add_argument("port", type=int)
options.add_argument("--cut", default="")
options.add_argument("--forget", default="")
options.add_argument("--forget-in", nargs=2, default=["", ""])
options.add_argument("--needs", default="")
options.add_argument("--no-usage", action="store_true")
options.add_argument("--drift", action="store_true")
args, ignored = options.parse_known_args()

CHUNK = 256
BEGIN, END = 3, 4  # tokens around each message
TOKEN = re.compile(r" ?[A-Za-z][a-z]*|\d{1,3}|.", re.DOTALL)
drift = 0


def is_on(flag):
    return flag and os.environ.get(flag) == "1"


def count(text):
    return len(TOKEN.findall(text))


def stated(messages):
    """The value asked for and where its tokens begin and end; None where nothing is asked."""
    question = reading.asked(messages[-1]["content"])
    if not question:
        return None
    found, at = None, 0
    for message in messages[:-1]:
        text = message["content"] or ""
        for value, begin, end in reading.stated(*question, text):
            before = text[:begin - 1] if text[begin - 1] == " " else text[:begin]
            found = value, at + BEGIN + count(before), at + BEGIN + count(text[:end])
        at += BEGIN + count(text) + END
    return found


class Handler(JsonHandler):
    known = {"/v1/models": {"data": [{"id": "chatting"}]}, "/health": {}}

    def do_POST(self):
        global drift
        request = self.request_body()
        if "messages" not in request:
            return self.reply(200, {"choices": [{"text": "what", "finish_reason": "stop"}]})
        messages = request["messages"]
        tokens = sum(BEGIN + count(m["content"] or "") + END for m in messages) + BEGIN
        whole = " ".join(m["content"] or "" for m in messages)
        forgotten = is_on(args.forget_in[1]) and args.forget_in[0] in whole
        found = stated(messages)
        if found:
            text, begin, end = found
            cut = is_on(args.cut) and begin // CHUNK != (end - 1) // CHUNK
            if cut or forgotten or (is_on(args.forget) and tokens > 300):
                text = "Z9" + text[2:]
        else:
            text = "This is your first message." if forgotten else "We spoke of " + whole[:60]
        drift += 1 if args.drift else 0
        usage = {} if args.no_usage else {"usage": {"prompt_tokens": tokens + drift,
                                                    "prompt_tokens_details": {"cached_tokens": 128}}}
        self.reply(200, {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], **usage})


if args.needs and not is_on(args.needs):
    sys.exit("assertion failed: %s must be set" % args.needs)
serve(args.port, Handler)
