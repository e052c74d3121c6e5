#!/usr/bin/env python3
"""A thousand streams that wait cost the server less than 100 MB, and go when their clients go.

Usage: idle_streams_test.py BUILD SOURCE
"""
import asyncio
import resource
import sys

import http_client
from server_process import Server

STREAMS = 1000
MOST_BYTES = 100 * 10**6
TIMEOUT_S = 120


async def open_stream(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(http_client.request_bytes("POST", "/v1/chat/completions", http_client.recall(
        stream=True, ignore_eos=True, max_tokens=4000, logit_bias={"143": 100})))  # a letter: no control token ends it
    await writer.drain()
    head = await asyncio.wait_for(reader.readuntil(b'"role":"assistant"'), TIMEOUT_S)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return reader, writer


async def waiting(port):
    info = (await http_client.request(port, "GET", "/server_info")).json()["internal_states"][0]
    return info["waiting"], info["running"]


async def run(server):
    await http_client.request(server.port, "POST", "/v1/chat/completions", http_client.recall())  # all is loaded
    before = server.rss_bytes()
    streams = []
    for _ in range(STREAMS // 50):
        streams += await asyncio.gather(*(open_stream(server.port) for _ in range(50)))
    queued, running = await waiting(server.port)
    assert queued + running == STREAMS, (queued, running)
    await asyncio.sleep(2)  # what they cost while they wait, keep-alive comments included
    growth = server.rss_bytes() - before
    print(f"{STREAMS} streams, {queued} of them waiting: {growth / 1e6:.1f} MB")
    assert growth < MOST_BYTES, f"{growth / 1e6:.1f} MB for {STREAMS} idle streams"
    for _, writer in streams:
        writer.close()
    for _ in range(TIMEOUT_S * 10):
        if await waiting(server.port) == (0, 0):
            break
        await asyncio.sleep(0.1)
    assert await waiting(server.port) == (0, 0), "streams without a client go on"
    reply = await http_client.request(server.port, "POST", "/v1/chat/completions", http_client.recall())
    assert reply.json()["choices"][0]["message"]["content"] == http_client.ANSWER, reply.body


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < STREAMS + 64:
        print(f"SKIPPED: this system allows only {hard} open files")
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, STREAMS + 64), hard))
    with Server(*sys.argv[1:3], "--max-running", "1", "--max-queue", str(STREAMS + 8)) as server:
        asyncio.run(run(server))
        assert server.stop() == 0, server.text()


main()
