#!/usr/bin/env python3
"""Switches turned by requests and by restarts give one verdict of the real engine, the former with fewer launches.

One server with a planted fault is investigated twice with one seed: once each variant is a launch, once what requests can
turn is turned by them. Both must confirm the same switch and nothing else.

Usage: fast_path_test.py BUILD SOURCE [KIND/FORM HOST]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from demo_support import FACTS

SEED = "5"


def switches_of(build):
    table = json.loads(subprocess.run([build / "plumb", "switches", "--json"], check=True, capture_output=True).stdout)
    return [s for s in table["switches"] if s["default"] in (True, "on")]


def deployment(build, source, plant, by_request):
    model = source / "phantom" / "checkpoint"
    command = [str(build / "plumb-faulty"), "serve", str(model), "--port", "{port:server}", "--plant", plant]
    text = f"""[deployment]
name = "fast path"
[[process]]
name = "server"
command = {json.dumps(command)}
ready = {{http = "/health", generate = true}}
[[endpoint]]
url = "http://127.0.0.1:{{port:server}}"
{FACTS}"""
    for s in switches_of(build):
        name, request = s["name"], by_request and s["scope"] == "request"
        side = ('{{ body = {{ plumb = {{ switches = {{ "{0}" = "{1}" }} }} }} }}' if request
                else '{{ args = ["--set", "{0}={1}"] }}')
        text += f'[[switch]]\nname = "{name}"\n' + ('apply = "request"\n' if request else "")
        text += f'sides = {{ off = {side.format(name, "off")}, on = {side.format(name, "on")} }}\n'
    return text


def investigate(build, source, folder, plant, by_request):
    name = "requests" if by_request else "restarts"
    file = folder / f"{name}.toml"
    file.write_text(deployment(build, source, plant, by_request))
    done = subprocess.run([build / "plumb", "investigate", file, "--case", folder / name, "--seed", SEED, "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 1, f"{name}: exit {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def main():
    build, source = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    plant, host = sys.argv[3:5] if len(sys.argv) > 4 else ("splitk-merge/no-rescale", "attention.split_k")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        slow = investigate(build, source, folder, plant, False)
        fast = investigate(build, source, folder, plant, True)
    for verdict in (slow, fast):
        assert verdict["verdict"] == "confirmed", verdict
        assert [c["switch"] for c in verdict["culprits"]] == [host], verdict
    assert fast["launches"]["search"] < slow["launches"]["search"], (fast["launches"], slow["launches"])
    assert fast["launches"]["confirm"] >= 4, "confirmed on launches of its own"
    print(f"{plant}: {host}; launches of the search {slow['launches']['search']} and {fast['launches']['search']}")


if __name__ == "__main__":
    main()
