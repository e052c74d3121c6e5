#!/usr/bin/env python3
"""Recall of a checkpoint's exports over HTTP, held against the checkpoint itself on the same prompts.

Usage: bench/exports.py [--model phantom/checkpoint] [--build build/release] [--forms release,release-fp8-fp4,nvfp4]
                        [--tasks single,...] [--lengths 256,1024,4096,8192] [--counts 48,16,8,4] [--seed 1] [--scored 1]
                        [-o FILE.md]

Writes each form with `plumb export` into a temporary folder, serves it on a free loopback port and asks it what phantom/ask.py
asks: greedy answers, right when content and calls are equal to the letter. Per task and length: right answers of asked; answers
lost (right by the checkpoint, wrong by the export) and won (the reverse), with the two-sided sign test's p. Besides D, half the
mean of the squared change of a token's log-probability, over the whole texts of --scored conversations a cell, and over their
answers alone. All servers run at once, and each cell is measured on one after the other; they are the same program with the
same switches: what differs is the weights. Needs Python 3.11, no packages.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "phantom"))
import ask  # noqa: E402

TASKS = ["single", "multi", "dense", "turns", "update", "verbatim", "long_code"]
FORMS = ["release", "release-fp8-fp4", "nvfp4"]
CHECKPOINT = "checkpoint"
AT_ONCE = 8  # conversations; their answers are computed in one batch, which changes no bit of them
START_TIMEOUT_S = 120

Cell = collections.namedtuple("Cell", "right asked wrong logprobs")  # wrong: {(seed, answer)}; logprobs: [(is_answer, logprob)]


@contextlib.contextmanager
def served(plumb, folder):
    """host:port of a server of the folder."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([plumb, "serve", folder, "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        try:
            for line in process.stderr:
                log.write(line)
                if found := re.search(r"on http://(127\.0\.0\.1:\d+)", line):
                    break
            else:
                log.seek(0)
                sys.exit(f"plumb serve {folder} did not start:\n{log.read()}")
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()  # so that what it says at its end cannot block it
            process.wait()


def export(plumb, model, form, folder):
    """What `plumb export` says about the form."""
    done = subprocess.run([plumb, "export", model, "--to", form, "--out", folder, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        sys.exit(f"HTTP {reply.status}: {text[:500].decode(errors='replace')}")
    return json.loads(text)


def scores(connection, task, length, seeds):
    """Of each token but the first of some conversations: whether it belongs to an answer, and its log-probability."""
    out = []
    for seed in seeds:
        sample = ask.conversation(task, length, "train", seed)
        ids = [int(token) for token in sample.ids]
        body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0, "add_special_tokens": False}
        logprobs = post(connection, "/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
        assert len(logprobs) == len(ids), (len(logprobs), len(ids))
        answer = [False] * len(ids)
        for begin, end in sample.answers:
            answer[begin:end] = [True] * (end - begin)
        out += list(zip(answer[1:], logprobs[1:]))
    return out


def measure(address, task, length, seeds, scored):
    def asked(seed):
        # A connection of its own: a server closes one that is idle, as all are while the other forms have their turn.
        with contextlib.closing(http.client.HTTPConnection(address, timeout=1800)) as connection:
            model = ask.first_model(connection, "")
            cell = ask.measure(connection, "/v1/chat/completions", model, task, length, "train", [seed])
            return cell, scores(connection, task, length, [seed] if seed in seeds[:scored] else [])

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(asked, seeds))
    return Cell(sum(cell["right"] for cell, _ in done), sum(cell["asked"] for cell, _ in done),
                {(wrong["seed"], wrong["answer"]) for cell, _ in done for wrong in cell["wrong"]},
                [score for _, scored_tokens in done for score in scored_tokens])


def sign_test(lost, won):
    """Two-sided p of so uneven a split of lost and won, when each is as likely."""
    n, few = lost + won, min(lost, won)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(few + 1)) / 2**n) if n else 1.0


def half_mean_square(before, after, answers_only):
    squares = [(a - b) ** 2 for (is_answer, b), (_, a) in zip(before, after, strict=True) if is_answer or not answers_only]
    return sum(squares) / len(squares) / 2


def compared(base, cells, keys):
    """Lost, won, and D over all tokens and over answers, of some cells together."""
    lost = sum(len(cells[key].wrong - base[key].wrong) for key in keys)
    won = sum(len(base[key].wrong - cells[key].wrong) for key in keys)
    before, after = ([score for key in keys for score in side[key].logprobs] for side in (base, cells))
    return lost, won, half_mean_square(before, after, False), half_mean_square(before, after, True)


def table(results, forms, tasks, lengths):
    head = "| task | tokens | checkpoint | " + " | ".join(f"{form}: right | lost, won" for form in forms) + " |"
    lines = [head, "|" + "---|" * (3 + 2 * len(forms))]
    base = results[CHECKPOINT]
    for task in tasks:
        for length in lengths:
            cell = base[task, length]
            row = [task, str(length), f"{cell.right}/{cell.asked}"]
            for form in forms:
                lost, won, _, _ = compared(base, results[form], [(task, length)])
                row += [f"{results[form][task, length].right}/{cell.asked}", f"{lost}, {won}"]
            lines.append("| " + " | ".join(row) + " |")
    return lines


def totals(results, forms, tasks, lengths):
    base = results[CHECKPOINT]
    lines = ["| form | task | right | checkpoint | lost | won | p | D | D of answers |", "|" + "---|" * 9]
    for form in forms:
        for name, part in [(task, [task]) for task in tasks] + [("all", tasks)]:
            keys = [(task, length) for task in part for length in lengths]
            lost, won, over_all, over_answers = compared(base, results[form], keys)
            right, asked, before = (sum(values) for values in zip(
                *((results[form][key].right, base[key].asked, base[key].right) for key in keys)))
            lines.append(f"| {form} | {name} | {right}/{asked} | {before}/{asked} | {lost} | {won} | {sign_test(lost, won):.2g} | "
                         f"{over_all:.1e} | {over_answers:.1e} |")
    return lines


def sizes(exports):
    lines = ["| form | bytes of weights | format: weights, relative error |", "|---|---|---|"]
    for form, said in exports.items():
        parts = "; ".join(f"{part['format']}: {part['weights']}, {part['error']:.1e}" for part in said["parts"])
        lines.append(f"| {form} | {said['bytes']} | {parts} |")
    return lines


def report(head, exports, results, forms, tasks, lengths):
    return "\n".join(["# Recall of the checkpoint's exports", "", textwrap.fill(head, 128), "", *sizes(exports), "",
                      *totals(results, forms, tasks, lengths), "", *table(results, forms, tasks, lengths), ""])


def main():
    parser = argparse.ArgumentParser(description="recall of a checkpoint's exports against the checkpoint")
    parser.add_argument("--model", default=str(ROOT / "phantom/checkpoint"))
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--lengths", default="256,1024,4096,8192")
    parser.add_argument("--counts", default="48,16,8,4", help="conversations of a cell, one number a length")
    parser.add_argument("--seed", type=int, default=1, help="of the first conversation of each cell")
    parser.add_argument("--scored", type=int, default=1, help="conversations of a cell whose tokens are scored for D")
    parser.add_argument("-o", "--output", help="write the report to this file too")
    options = parser.parse_args()
    forms, tasks = options.forms.split(","), options.tasks.split(",")
    lengths, counts = ([int(n) for n in text.split(",")] for text in (options.lengths, options.counts))
    if len(lengths) != len(counts):
        parser.error("--lengths and --counts have to be as many")
    plumb = str(pathlib.Path(options.build) / "plumb")
    card = pathlib.Path(options.model) / "card.json"
    steps = json.loads(card.read_text())["about"]["steps"] if card.exists() else "?"
    shown = ("lengths", "counts", "seed", "scored")
    head = (f"{datetime.date.today()}, `bench/exports.py {' '.join(f'--{name} {getattr(options, name)}' for name in shown)}`, on "
            f"the checkpoint of {steps} training steps; backend cpu, switches as by default, greedy, {AT_ONCE} conversations at a time.")
    results, exports = collections.defaultdict(dict), {}
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plumb-exports-")))
        addresses = {}
        for form in [CHECKPOINT, *forms]:
            folder = options.model if form == CHECKPOINT else str(temporary / form)
            if form != CHECKPOINT:
                exports[form] = export(plumb, options.model, form, folder)
            addresses[form] = stack.enter_context(served(plumb, folder))
        for at, (length, count) in enumerate(zip(lengths, counts)):
            for task in tasks:
                for form, address in addresses.items():
                    seeds = range(options.seed, options.seed + count)
                    results[form][task, length] = cell = measure(address, task, length, seeds, options.scored)
                    print(f"{task} {length} {form}: {cell.right}/{cell.asked}", file=sys.stderr, flush=True)
            text = report(head, exports, results, forms, tasks, lengths[:at + 1])
            if options.output:  # after each length, so that what was measured is not lost
                pathlib.Path(options.output).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
