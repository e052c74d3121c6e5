#!/usr/bin/env python3
"""Four times the load that the server sustains: what it accepts it answers rightly, what it cannot take gets a 503 with
Retry-After at once, and its memory stays bounded.

Usage: overload_test.py BUILD SOURCE [--seconds S]
"""
import argparse
import asyncio
import collections
import sys
import time

import http_client
from server_process import Server

CLIENTS = 4          # of the measurement, each with one request after the other
MEASURE_S = 4
FACTOR = 4
MOST_GROWTH_BYTES = 64 * 10**6
MOST_REQUESTS_A_SECOND = 2000  # that the test itself could keep up with


async def ask(port, outcomes, latencies):
    start = time.monotonic()
    try:
        reply = await http_client.request(port, "POST", "/v1/chat/completions", http_client.recall())
    except OSError as error:
        outcomes[f"connection: {error.__class__.__name__}"] += 1
        return
    if reply is None:
        outcomes["closed without a reply"] += 1
    elif reply.status == 200:
        right = reply.json()["choices"][0]["message"]["content"] == http_client.ANSWER
        outcomes["right" if right else f"wrong: {reply.body[:200]}"] += 1
        latencies.append(time.monotonic() - start)
    elif reply.status == 503 and reply.json()["error"]["code"] == "overloaded" and int(reply.headers["retry-after"]) >= 1:
        outcomes["refused"] += 1
    else:
        outcomes[f"status {reply.status}: {reply.body[:200]}"] += 1


async def sustained(port):
    """Requests a second with CLIENTS clients that wait for their replies."""
    outcomes, end = collections.Counter(), time.monotonic() + MEASURE_S

    async def client():
        while time.monotonic() < end:
            await ask(port, outcomes, [])

    start = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert set(outcomes) == {"right"}, outcomes
    return outcomes["right"] / (time.monotonic() - start)


async def run(server, seconds):
    rate = FACTOR * await sustained(server.port)
    assert rate <= MOST_REQUESTS_A_SECOND, f"{rate:.0f} requests a second are more than this test can send; give the server longer prompts"
    before, most = server.rss_bytes(), 0
    outcomes, latencies, tasks = collections.Counter(), [], []
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        for _ in range(max(0, int(now * rate) - len(tasks))):
            tasks.append(asyncio.create_task(ask(server.port, outcomes, latencies)))
        most = max(most, server.rss_bytes())
        await asyncio.sleep(0.01)
    sent_s = time.monotonic() - start
    await asyncio.gather(*tasks)
    growth = max(most, server.rss_bytes()) - before
    latencies.sort()
    print(f"{len(tasks)} requests at {rate:.0f} a second in {sent_s:.0f} s: {dict(outcomes)}; "
          f"the slowest accepted took {latencies[-1]:.2f} s; {growth / 1e6:.1f} MB more")
    assert set(outcomes) == {"right", "refused"}, outcomes
    assert growth < MOST_GROWTH_BYTES, f"{growth / 1e6:.1f} MB"
    health = await http_client.request(server.port, "GET", "/health_generate")
    assert health.status == 200, health.body


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("source")
    parser.add_argument("--seconds", type=int, default=8)
    args = parser.parse_args()
    with Server(args.build, args.source, "--max-running", "4", "--max-queue", "8") as server:
        asyncio.run(run(server, args.seconds))
        assert server.stop() == 0, server.text()


sys.exit(main())
