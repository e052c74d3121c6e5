#!/usr/bin/env python3
"""Asks a served phantom the questions of its tasks and counts the exact answers.

Usage: phantom/ask.py URL [--tasks single,turns] [--lengths 256,4096] [--count 20] [--seed 1] [--split train|held_out]
                      [--at-least SHARE] [--json FILE]

Every answer is one greedy request to /v1/chat/completions with the conversation up to the question; earlier answers in it are the
correct ones. Right means: content and tool calls are equal to the letter, and the turn was ended. Wrong answers are listed with
the seed that makes the conversation again: tasks.sample(random.Random(f"{task} {length} {split} {seed}"), task, length, split).
Exits 1 when a cell's share of right answers is below --at-least. Needs Python 3.11, no packages.
"""

import argparse
import contextlib
import http.client
import json
import random
import sys
import time
import urllib.parse

import tasks


def conversation(task, length, split, seed):
    return tasks.sample(random.Random(f"{task} {length} {split} {seed}"), task, length, split)


def first_model(connection, path):
    connection.request("GET", path + "/v1/models")
    return json.loads(connection.getresponse().read())["data"][0]["id"]


def calls_of(message):
    """Names and arguments; arguments that are no JSON stay text."""
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass
        calls.append((call["function"]["name"], arguments))
    return calls


def ask(connection, path, sample, index, model):
    """The server's message, whether it ended its turn, and the expected message."""
    request, expected = tasks.prompt(sample, index)
    begin, end = sample.answers[index]
    body = {**request, "model": model, "max_tokens": end - begin + 16}
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"HTTP {reply.status}: {text[:500].decode(errors='replace')}")
    choice = json.loads(text)["choices"][0]
    return choice["message"], choice["finish_reason"] != "length", expected


def is_right(message, ended, expected):
    return ended and (message.get("content") or "") == expected["content"] and calls_of(message) == calls_of(expected)


def measure(connection, path, model, task, length, split, seeds):
    """One cell: {"right", "asked", "no_answer", "wrong": [...], "seconds"}."""
    cell = {"task": task, "length": length, "split": split, "right": 0, "asked": 0, "no_answer": 0, "wrong": []}
    started = time.monotonic()
    for seed in seeds:
        sample = conversation(task, length, split, seed)
        for index in range(len(sample.answers)):
            message, ended, expected = ask(connection, path, sample, index, model)
            cell["asked"] += 1
            if is_right(message, ended, expected):
                cell["right"] += 1
                continue
            cell["no_answer"] += not (message.get("content") or message.get("tool_calls"))
            cell["wrong"].append(
                {
                    "seed": seed,
                    "answer": index,
                    "kind": sample.meta["answers"][index]["kind"],
                    "ended": ended,
                    "expected": [expected["content"], *calls_of(expected)],
                    "got": [message.get("content") or "", *calls_of(message)],
                }
            )
    cell["seconds"] = round(time.monotonic() - started, 1)
    return cell


def main(arguments=None):
    parser = argparse.ArgumentParser(description="exact answers of a served phantom")
    parser.add_argument("url")
    parser.add_argument("--tasks", default=",".join(tasks.TASKS))
    parser.add_argument("--lengths", default="256,512,1024,2048,4096")
    parser.add_argument("--count", type=int, default=20, help="conversations of a cell")
    parser.add_argument("--seed", type=int, default=1, help="of the first conversation")
    parser.add_argument("--split", choices=("train", "held_out"), default="train")
    parser.add_argument("--model", help="name in the requests; without it the first that the server lists")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--json", metavar="FILE", help="write all cells with their wrong answers")
    options = parser.parse_args(arguments)
    names, lengths = options.tasks.split(","), [int(length) for length in options.lengths.split(",")]
    for name in names:
        if name not in tasks.TASKS:
            parser.error(f"no task {name}; there are {', '.join(tasks.TASKS)}")
    url = urllib.parse.urlparse(options.url if "//" in options.url else "http://" + options.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=1800)
    path = url.path.rstrip("/") + "/v1/chat/completions"
    cells = []
    print("| task | tokens | right | no answer | seconds |\n|---|---|---|---|---|")
    with contextlib.closing(connection):
        model = options.model or first_model(connection, url.path.rstrip("/"))
        for name in names:
            for length in lengths:
                cell = measure(
                    connection, path, model, name, length, options.split, range(options.seed, options.seed + options.count)
                )
                cells.append(cell)
                print(
                    f"| {name} | {length} | {cell['right']}/{cell['asked']} | {cell['no_answer']} | {cell['seconds']} |",
                    flush=True,
                )
    print("\nWrong answers:\n")
    for cell in cells:
        for wrong in cell["wrong"]:
            print("- `" + json.dumps({"task": cell["task"], "length": cell["length"], **wrong}) + "`")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(cells, file, indent=1)
    return int(any(cell["right"] < options.at_least * cell["asked"] for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
