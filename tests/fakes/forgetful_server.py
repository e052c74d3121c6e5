"""A completions server that answers from the prompt, and on request forgets what long prompts say. Standard library only.

usage: forgetful_server.py PORT [--set SWITCH=on|off]...

Switches: recall.fast, whose on side answers long prompts wrong, with markup in the reply; log.verbose, which does nothing.
"""
import sys

import reading
from json_handler import JsonHandler, serve

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


class Handler(JsonHandler):
    known = {"/v1/models": {"data": [{"id": "forgetful"}]}, "/health": {}}

    def do_POST(self):
        request = self.request_body()
        if self.path != "/v1/completions":
            return self.reply(404, {"error": {"message": "completions only"}})
        return self.reply(200, {"choices": [{"text": answer(request["prompt"]), "finish_reason": "stop"}]})


serve(int(sys.argv[1]), Handler)
