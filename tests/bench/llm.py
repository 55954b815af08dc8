#!/usr/bin/env python3
"""Measures coppice.LLM: processes with a sequence each on one document, by a daemon that runs.

    COPPICE_SOCKET=./sock tests/bench/llm.py --checkpoint FOLDER --document 32768 --processes 8

Told are the document's computing, once, by a process that ends; what each process took to open the
checkpoint, its first token and ms from token to token while all decode; the memory that is each
process's alone; and of the GPU, if there is one, what is in use and by whom. Needs the package. A
checkpoint of random weights is what coppice-bench decode has left in its --models.
"""

import argparse
import multiprocessing
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import serve

import coppice


@dataclass
class Told:
    """By a process."""

    opened: float  # seconds
    timing: serve.Timing = field(default_factory=serve.Timing)
    private: float = 0.0  # MiB


def decode(args, llm, own, n_tokens):
    """Of one sequence, from the call to its last token."""
    args.vocab = llm.model.n_vocab
    prompt = serve.prompt_of(args, own)
    timing = serve.Timing(begun=time.monotonic())
    for piece in llm.stream(prompt, max_tokens=n_tokens, temperature=0, ignore_eos=True):
        timing.tokens += [time.monotonic()] * len(piece.tokens)
    return timing


def private_mib():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def document(args, results):
    with coppice.LLM(args.checkpoint, progress=False) as llm:
        results.put(decode(args, llm, 10**6, 1).first)


def process(args, own, barrier, results):
    """Whoever is told stays until the GPU's memory was looked at."""
    begun = time.monotonic()
    with coppice.LLM(args.checkpoint, progress=False) as llm:
        told = Told(time.monotonic() - begun)
        barrier.wait()
        told.timing = decode(args, llm, own, args.tokens)
        told.private = private_mib()
        results.put(told)
        barrier.wait()


def card():
    """What of the GPU is in use; "": there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    said = [["--query-gpu=memory.used"], ["--query-compute-apps=name,used_memory"]]
    command = ["nvidia-smi", "--format=csv,noheader"]
    lines = [subprocess.run(command + query, capture_output=True, text=True) for query in said]
    return "; ".join(line for found in lines for line in found.stdout.splitlines())


def side_by_side(args, process):
    """What processes tell, each by its number; what of the GPU they take is printed meanwhile."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(args.processes + 1), context.Queue()
    processes = [
        context.Process(target=process, args=(args, own, barrier, results))
        for own in range(args.processes)
    ]
    for one in processes:
        one.start()
    barrier.wait()
    told = [results.get() for _ in processes]
    print(f"the GPU, with {args.processes} processes: {card() or 'none'}")
    barrier.wait()
    for one in processes:
        one.join()
    return told


def measure(args):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    first = context.Process(target=document, args=(args, results))
    first.start()
    print(f"document of {args.document} tokens: {results.get():.3f} s, loading left out")
    first.join()
    told = side_by_side(args, process)
    tell([one.timing for one in told], told)


def tell(timings, told):
    begin = max(timing.tokens[0] for timing in timings)
    end = min(timing.tokens[-1] for timing in timings)
    gaps = [
        b - a
        for timing in timings
        for a, b in zip(timing.tokens, timing.tokens[1:])
        if begin <= a and b <= end
    ]
    print(f"{serve.tokens_a_second(timings):.0f} tokens/s while all decode")
    print(f"each has {max(one.private for one in told):.0f} MiB of its own at most\n")
    print("| ms | p50 | p90 | p99 |\n| --- | --- | --- | --- |")
    serve.row("to open the checkpoint", [one.opened for one in told])
    serve.row("first token", [timing.first for timing in timings])
    serve.row("between tokens, while all decode", gaps)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--checkpoint", required=True, help="a folder")
    parser.add_argument("--document", type=int, default=32768, help="tokens")
    parser.add_argument("--prompt", type=int, default=64, help="of each sequence alone")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--processes", type=int, default=8)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
