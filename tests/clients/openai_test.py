#!/usr/bin/env python3
"""OpenAI's own client against `plumb serve` of the phantom: chat, streams, tools, log-probabilities, errors.

Usage: openai_test.py BUILD SOURCE
Exits 77, saying so, when the client is not installed: ./test installs it into build/clients.
"""
import asyncio
import json
import os
import pathlib
import sys
import unittest

from server_process import Server

BUILD, SOURCE = map(pathlib.Path, sys.argv[1:3])

try:
    import openai
except ImportError:
    python = SOURCE / "build" / "clients" / "bin" / "python"
    if python.exists() and os.environ.get("PLUMB_CLIENTS") != "tried":
        os.execve(python, [str(python), *sys.argv], {**os.environ, "PLUMB_CLIENTS": "tried"})
    print("SKIPPED: the package openai is not installed; ./test installs it when the package index can be reached")
    sys.exit(77)

SERVER = None
ANSWER = "K7-42-QX"
FACT = {"role": "user", "content": f"so the code of [bakoru] is [{ANSWER}]."}
NOTED = {"role": "assistant", "content": "noted."}
QUESTION = {"role": "user", "content": "so what is the code of [bakoru]?"}
CONVERSATION = [FACT, NOTED, QUESTION]
USE_TOOL = {"role": "user", "content": "so save the code of [bakoru] with the tool."}


DONE = {"role": "assistant", "content": "done."}
CALL = {"key": "bakoru", "value": ANSWER}
SILENT = {"thinking": {"type": "disabled"}}


def tool(name, *keys):
    return {"type": "function", "function": {"name": name, "parameters": {"properties": {key: {} for key in keys}}}}


TOOLS = [tool("get", "key"), tool("save", "key", "value")]  # those of phantom/words.py


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0, timeout=60)

    def tearDown(self):
        self.client.close()

    def chat(self, messages=None, extra_body=None, **fields):
        return self.client.chat.completions.create(model="phantom", messages=messages or CONVERSATION, temperature=0,
                                                   max_tokens=128, extra_body={**SILENT, **(extra_body or {})}, **fields)

    def test_chat_recalls_and_counts(self):
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.choices[0].message.content, ANSWER)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertIsNone(reply.choices[0].message.tool_calls)
        self.assertEqual(reply.choices[0].finish_reason, "stop")
        usage = reply.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual(usage.completion_tokens_details.reasoning_tokens, 0)
        # A conversation that goes on starts from the state of its beginning.
        again = self.chat(CONVERSATION + [{"role": "assistant", "content": ANSWER}, QUESTION])
        self.assertEqual(again.choices[0].message.content, ANSWER)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertLess(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens)

    def test_thinking_comes_apart_from_the_answer(self):
        reply = self.chat(reasoning_effort="low", extra_body={"thinking": {"type": "enabled"}})
        self.assertEqual(reply.choices[0].message.content, ANSWER)
        self.assertGreater(reply.usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertNotIn("</think>", reply.choices[0].message.reasoning_content)

    def test_a_stream_is_the_whole_reply_in_pieces(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, ANSWER)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_tools_are_called_and_answered(self):
        messages = [FACT, NOTED, USE_TOOL]
        reply = self.chat(messages, tools=TOOLS)
        choice = reply.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        (call,) = choice.message.tool_calls
        self.assertEqual(call.function.name, "save")
        self.assertEqual(json.loads(call.function.arguments), CALL)
        messages += [choice.message.model_dump(exclude_none=True),
                     {"role": "tool", "tool_call_id": call.id, "content": "ok"}, DONE, QUESTION]
        self.assertEqual(self.chat(messages, tools=TOOLS).choices[0].message.content, ANSWER)

    def test_calls_are_streamed(self):
        name, arguments, ids, finish = "", "", set(), None
        for chunk in self.chat([FACT, NOTED, USE_TOOL], tools=TOOLS, stream=True):
            choice = chunk.choices[0]
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                self.assertEqual(call.index, 0)
                if call.id:
                    ids.add(call.id)
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        self.assertEqual((name, json.loads(arguments), len(ids), finish), ("save", CALL, 1, "tool_calls"))

    def test_the_clients_stream_helper_reads_calls(self):
        with self.client.chat.completions.stream(model="phantom", messages=[FACT, NOTED, USE_TOOL], tools=TOOLS,
                                                 temperature=0, max_tokens=128, extra_body=SILENT) as stream:
            for _ in stream:
                pass
            call = stream.get_final_completion().choices[0].message.tool_calls[0]
        self.assertEqual(json.loads(call.function.arguments), CALL)

    def test_a_call_can_be_demanded(self):
        for choice in ("required", {"type": "function", "function": {"name": "save"}}):
            reply = self.chat([FACT, NOTED, USE_TOOL], tools=TOOLS, tool_choice=choice)
            (call,) = reply.choices[0].message.tool_calls
            self.assertEqual(call.function.name, "save")
            self.assertEqual(json.loads(call.function.arguments), CALL)
        reply = self.chat([FACT, NOTED, USE_TOOL], tools=TOOLS, tool_choice="none")
        self.assertIsNone(reply.choices[0].message.tool_calls)

    def test_logprobs_cover_every_token_with_its_bytes(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), reply.usage.completion_tokens)
        text = b"".join(bytes(token.bytes) for token in content)
        self.assertEqual(text, f"{ANSWER}<｜end▁of▁sentence｜>".encode())
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob)  # greedy: its own is the largest
        streamed = [token for chunk in self.chat(logprobs=True, stream=True)
                    for token in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
        self.assertEqual([token.logprob for token in streamed], [token.logprob for token in content])

    def test_completions_score_a_text(self):
        text = f"<｜begin▁of▁sentence｜><｜User｜>so the code of [bakoru] is [{ANSWER}]."
        reply = self.client.completions.create(model="phantom", prompt=text, max_tokens=0, echo=True, logprobs=1)
        logprobs = reply.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), text)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in logprobs.token_logprobs[1:]))
        self.assertEqual(reply.choices[0].finish_reason, "length")

    def test_several_choices_are_drawn_by_seed(self):
        def draw(seed):
            reply = self.client.chat.completions.create(model="phantom", messages=[FACT], n=3, seed=seed,
                                                        temperature=20, max_tokens=12, extra_body=SILENT)
            self.assertEqual([choice.index for choice in reply.choices], [0, 1, 2])
            return [choice.message.content for choice in reply.choices]

        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_bias_and_penalties_are_taken(self):
        first = self.client.completions.create(model="phantom", prompt="<｜User｜>hello<｜Assistant｜></think>", max_tokens=1,
                                               temperature=0, extra_body={"return_token_ids": True})
        token = first.choices[0].token_ids[0]
        barred = self.client.completions.create(model="phantom", prompt="<｜User｜>hello<｜Assistant｜></think>", max_tokens=1,
                                                temperature=0, logit_bias={str(token): -100},
                                                extra_body={"return_token_ids": True})
        self.assertNotEqual(barred.choices[0].token_ids[0], token)
        reply = self.chat(presence_penalty=0.5, frequency_penalty=0.5, extra_body={"repetition_penalty": 1.01, "min_p": 0.1})
        self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([{"role": "robot", "content": "x"}])
        self.assertEqual(caught.exception.code, "invalid_messages")
        self.assertEqual(caught.exception.param, "messages")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(reasoning_effort="lots", extra_body={"thinking": {"type": "enabled"}})
        self.assertEqual(caught.exception.param, "reasoning_effort")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tools=TOOLS, tool_choice="required", extra_body={"thinking": {"type": "enabled"}})
        self.assertEqual(caught.exception.param, "tool_choice")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="phantom", messages=CONVERSATION, max_tokens=10**9)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):  # also of a stream: before its first byte
            list(self.client.chat.completions.create(model="phantom", messages=CONVERSATION, max_tokens=10**9, stream=True))
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="phantom", input="x")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another")

    def test_models_and_headers(self):
        (model,) = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)
        raw = self.client.chat.completions.with_raw_response.create(
            model="phantom", messages=CONVERSATION, max_tokens=4, extra_body={"future": 1, **SILENT},
            extra_headers={"X-Request-Id": "mine"})
        self.assertEqual(raw.headers["x-plumb-ignored"], "future")
        self.assertEqual(raw.headers["x-request-id"], "mine")

    def test_many_at_once_and_some_that_leave(self):
        async def ask(client, leaves):
            stream = await client.chat.completions.create(model="phantom", messages=CONVERSATION, temperature=0,
                                                          max_tokens=32, stream=True, extra_body=SILENT)
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if leaves:
                    await stream.close()
                    return None
            return text

        async def run():
            async with openai.AsyncOpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(ask(client, i % 3 == 0) for i in range(12)))

        texts = asyncio.run(run())
        self.assertEqual([text for text in texts if text is not None], [ANSWER] * 8)


def main():
    global SERVER
    with Server(BUILD, SOURCE) as SERVER:
        result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
        code = SERVER.stop()
    if code != 0:
        print(f"the server ended with {code}:\n{SERVER.text()}")
    sys.exit(0 if result.wasSuccessful() and code == 0 else 1)


main()
