#!/usr/bin/env python3
"""plumb beside transformers on the CPU: the same checkpoint, the same machine, turn by turn in one run.

Usage: PYTHON bench/transformers_side_by_side.py BUILD MODEL [--tokens N] [--context N] [--steps N] [--threads N]
                                                 [--rounds N] [--json]

PYTHON needs torch and transformers from PyPI; put them into a folder of their own, never into this one:

    python3 -m venv /tmp/plumb-peers && /tmp/plumb-peers/bin/pip install torch transformers

Prefill: a prompt of --tokens ids, one forward call of transformers against `plumb bench prefill` in its chunks. Decode:
--steps tokens behind --context ids, greedy with transformers' cache against `plumb bench decode`. Both in fp32 on
--threads threads, every switch of plumb off. The rounds alternate, so that other work on the machine meets both; the
best of each side counts. Before that both compute the logits of one short prompt: the ratio means nothing unless they
agree. Exit codes: 0 measured, 1 the logits differ, 3 something could not be run.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SAME_LOGITS = 1e-5  # relative; both round to fp32


def plumb(build, *args):
    done = subprocess.run([str(build / "plumb"), *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"plumb {args[0]}: exit code {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(3)
    return done.stdout


def rate_of_plumb(args, what, tokens):
    result = json.loads(plumb(args.build, "bench", what, args.model, "--tokens", tokens, "--threads", args.threads,
                              "--repeats", 3, "--json"))
    return result["tokens_per_second"], result


def best_rate(rounds):
    return max(rate for rate, _ in rounds)


class Peer:
    def __init__(self, args):
        import torch
        import transformers

        self.torch = torch
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        torch.set_num_threads(args.threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()

    def logits(self, ids):
        with self.torch.inference_mode():
            return self.model(self.torch.tensor([ids])).logits[0]

    def prefill_rate(self, ids):
        tensor = self.torch.tensor([ids])
        with self.torch.inference_mode():
            start = time.perf_counter()
            self.model(tensor, use_cache=True, logits_to_keep=1)
            return len(ids) / (time.perf_counter() - start)

    def decode_rate(self, ids, steps):
        with self.torch.inference_mode():
            out = self.model(self.torch.tensor([ids]), use_cache=True, logits_to_keep=1)
            start = time.perf_counter()
            for _ in range(steps):
                token = out.logits[:, -1].argmax(-1, keepdim=True)
                out = self.model(token, past_key_values=out.past_key_values, use_cache=True)
            return steps / (time.perf_counter() - start)


def relative_difference(peer, args, ids):
    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        ids_file, trace = pathlib.Path(folder, "ids.json"), pathlib.Path(folder, "trace.safetensors")
        ids_file.write_text(json.dumps(ids))
        plumb(args.build, "golden", args.model, "--ids", ids_file, "-o", trace)
        with safe_open(trace, framework="pt") as file:
            ours = file.get_tensor("logits")
    theirs = peer.logits(ids)
    return float((ours - theirs).norm() / theirs.norm())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("model", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    peer = Peer(args)
    draw = random.Random(1)
    vocabulary = peer.model.config.vocab_size
    prompt = [draw.randrange(vocabulary) for _ in range(args.tokens)]
    difference = relative_difference(peer, args, prompt[:150])
    print(f"{peer.version}; logits of 150 tokens differ by {difference:.1e}", file=sys.stderr)
    if difference > SAME_LOGITS:
        print(f"not the same model: logits differ by {difference}", file=sys.stderr)
        return 1

    ours, theirs = {"prefill": [], "decode": []}, {"prefill": [], "decode": []}
    peer.prefill_rate(prompt[:64])  # what transformers sets up once
    for number in range(args.rounds):
        theirs["prefill"].append(peer.prefill_rate(prompt))
        ours["prefill"].append(rate_of_plumb(args, "prefill", args.tokens))
        theirs["decode"].append(peer.decode_rate(prompt[:args.context], args.steps))
        ours["decode"].append(rate_of_plumb(args, "decode", args.context))
        print(f"round {number + 1} of {args.rounds} done", file=sys.stderr)

    result = {"peer": peer.version, "threads": args.threads, "logits_relative_difference": difference}
    for what, tokens in (("prefill", args.tokens), ("decode", args.context)):
        mine, other = best_rate(ours[what]), max(theirs[what])
        result[what] = {"tokens": tokens, "plumb": mine, "transformers": other, "ratio": mine / other}
    if args.json:
        print(json.dumps(result))
    else:
        for what in ("prefill", "decode"):
            row = result[what]
            print(f"{what:8} at {row['tokens']:5} tokens: plumb {row['plumb']:8.0f} tok/s, transformers "
                  f"{row['transformers']:8.1f} tok/s, ratio {row['ratio']:.1f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ImportError as missing:
        print(f"{missing}; see --help for the packages this needs", file=sys.stderr)
        sys.exit(3)
