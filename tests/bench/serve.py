#!/usr/bin/env python3
"""Measures a running server of coppice.serve (or another of OpenAI's API that takes prompts as
tokens): streams on one document, by clients in processes of their own.

    tests/bench/serve.py --url http://127.0.0.1:8000 --model NAME --vocab 128256 \\
        --document 32768 --streams 64 --tokens 256

Told are: the document's computing, once; all streams at once behind it, from tokens a second while
all of them decode, and what a client sees between two tokens, to the first tokens; and streams that
come one after another while the others decode: the first token of each. Needs nothing but Python.
"""

import argparse
import json
import multiprocessing
import os
import random
import socket
import statistics
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


@dataclass
class Timing:
    """Of a request, by a clock that all processes have."""

    begun: float = 0.0
    tokens: list = field(default_factory=list)  # when each came

    @property
    def first(self):
        return self.tokens[0] - self.begun

    @property
    def gaps(self):
        return [b - a for a, b in zip(self.tokens, self.tokens[1:])]


def prompt_of(args, own):
    """The document, then tokens that nobody else has; as coppice-bench decode draws them."""
    n = args.document + args.prompt
    owners = [0] * args.document + [1 + own] * args.prompt
    return [(i * 7919 + owners[i] * 104729 + 13) % args.vocab for i in range(n)]


def body_of(args, prompt, n_tokens):
    asked = {"model": args.model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0}
    return json.dumps({**asked, "ignore_eos": True, "stream": True}).encode()


def request_of(args, body):
    url = urllib.parse.urlsplit(args.url)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {args.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return (url.hostname, url.port or 80), head.encode() + body


def run(args, body):
    """A request from its first byte to its last."""
    address, request = request_of(args, body)
    timing = Timing()
    with socket.create_connection(address) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timing.begun = time.monotonic()
        link.sendall(request)
        with link.makefile("rb") as answer:
            status = answer.readline()
            if b" 200 " not in status:
                raise SystemExit(f"{status.decode()}{answer.read().decode()}")
            for line in answer:
                if line.startswith(b"data: {"):
                    timing.tokens.append(time.monotonic())
    return timing


def part_of(args, process):
    return range(process, args.streams, args.processes)


def together(args, process, barrier, results):
    """All streams at once."""
    bodies = [body_of(args, prompt_of(args, own), args.tokens) for own in part_of(args, process)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        barrier.wait()
        results.put(list(pool.map(lambda body: run(args, body), bodies)))


def by_turns(args, process, barrier, results):
    """Each stream is followed by the next, so that somebody joins all the time."""
    def stream(own):
        rng, timings = random.Random(own), []
        bodies = [
            body_of(args, prompt_of(args, (1 + turn) * 1000 + own), args.tokens)
            for turn in range(args.turns)
        ]
        ready.wait()
        time.sleep(rng.random() * args.spread)
        for body in bodies:
            timings.append(run(args, body))
        return timings

    owners = part_of(args, process)
    ready = threading.Barrier(len(owners) + 1)
    with ThreadPoolExecutor(len(owners)) as pool:
        found = [pool.submit(stream, own) for own in owners]
        ready.wait()
        barrier.wait()
        results.put([timing for one in found for timing in one.result()])


def in_processes(args, what):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(args.processes), context.Queue()
    processes = [
        context.Process(target=what, args=(args, i, barrier, results))
        for i in range(args.processes)
    ]
    for process in processes:
        process.start()
    timings = [timing for _ in processes for timing in results.get()]
    for process in processes:
        process.join()
    return timings


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def tokens_a_second(timings):
    """While all of them decode."""
    begin = max(timing.tokens[0] for timing in timings)
    end = min(timing.tokens[-1] for timing in timings)
    if end <= begin:
        raise SystemExit("no moment at which all streams decode: give more --tokens")
    n = sum(begin < at <= end for timing in timings for at in timing.tokens)
    return n / (end - begin)


def row(name, seconds):
    values = [1e3 * value for value in seconds]
    shares = [percentile(values, share) for share in (0.5, 0.9, 0.99)]
    print(f"| {name} | {' | '.join(f'{value:.2f}' for value in shares)} |")


def measure(args):
    first = run(args, body_of(args, prompt_of(args, 10**6), 1)).first
    again = [run(args, body_of(args, prompt_of(args, 10**6 + i), 1)).first for i in range(1, 9)]
    timings = in_processes(args, together)
    args.spread = statistics.median(timing.tokens[-1] - timing.begun for timing in timings)
    joined = in_processes(args, by_turns)
    print(f"document of {args.document} tokens: {first:.3f} s, once")
    print(f"{args.streams} streams: {tokens_a_second(timings):.0f} tokens/s while all decode\n")
    print("| ms | p50 | p90 | p99 |\n| --- | --- | --- | --- |")
    row("first token, alone behind the document", again)
    row("first token, all streams at once", [timing.first for timing in timings])
    row("first token, while others decode", [timing.first for timing in joined])
    row("between tokens, all streams at once", [gap for t in timings for gap in t.gaps])
    row("between tokens, while others come and go", [gap for t in joined for gap in t.gaps])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--vocab", type=int, required=True, help="tokens are below")
    parser.add_argument("--key", default=os.environ.get("COPPICE_API_KEY", "none"))
    parser.add_argument("--document", type=int, default=32768)
    parser.add_argument("--prompt", type=int, default=64, help="of each stream alone")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3, help="of each stream, one after another")
    parser.add_argument("--processes", type=int, default=4)
    args = parser.parse_args()
    args.processes = min(args.processes, args.streams)
    measure(args)


if __name__ == "__main__":
    main()
