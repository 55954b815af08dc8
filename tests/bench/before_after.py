#!/usr/bin/env python3
"""Two builds side by side: what the same loads take in the one and in the other.

    tests/bench/before_after.py BEFORE NOW [--seconds 60] [--only REGEX]

BEFORE and NOW are build folders with coppice-bench, coppiced, coppicectl and sched_count. A load is
short, and is run by the one and by the other in turns, in pairs of which either is first as often.
Told are the medians of both, the median of the differences within the pairs, and between which of
them it is with 95 %, by ranks: nothing is thought of how noise is distributed. What other processes
do to one run they mostly do to both, least where a run is shorter than a turn of theirs. Of
`rounds` it is the processor's time, of the others what coppice-bench says."""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import time

TINY = "-q 4 --kv-heads 2 --dim 16 --pool 64M"
CLIENTS = "tests/coppice-bench clients -j -b cpu"
SPINNING = "tests/coppice-bench ring -j -o spinning"
# What it is called, how it is run, and what is taken of it: case and metric; else the processor.
LOADS = [
    ("rounds: nops of one", "tests/sched_count nop 1 1 150000", None),
    ("rounds: nops of eight", "tests/sched_count nop 8 1 40000", None),
    ("rounds: nops of eight of three users", "tests/sched_count nop 8 3 40000", None),
    ("rounds: tokens of one, tiny", "tests/sched_count token 1 1 4000", None),
    ("rounds: tokens of eight, tiny", "tests/sched_count token 8 1 600", None),
    ("rounds: tokens of eight of three users, tiny", "tests/sched_count token 8 3 600", None),
    ("rounds: tokens of eight, 32/8 heads", "tests/sched_count large 8 1 40", None),
    ("ring: both spinning", SPINNING, ("spinning_1", "p50_us")),
    ("ring: both spinning, 64 sessions", SPINNING, ("spinning_64", "p50_us")),
    ("ring: asleep", "tests/coppice-bench ring -j -o asleep", ("asleep", "p50_us")),
    ("clients: one, tiny", f"{CLIENTS} -c 1 -p 256 -l 8 -t 200 {TINY}", ("", "p50_us")),
    ("clients: eight, tiny", f"{CLIENTS} -c 8 -p 256 -l 8 -t 60 {TINY}", ("", "p50_us")),
    ("clients: four, 32/8 heads", f"{CLIENTS} -c 4 -p 1024 -t 25", ("", "p50_us")),
    (
        "attention: 64 on 4,096",
        "tests/coppice-bench attention -j -b cpu -t 1 -r 3 -o shared_4096x64",
        ("", "time_us"),
    ),
]


def run(build, command, wanted):
    """Seconds of the processor, or the metric of the first case that is called so."""
    program, *rest = command.split()
    process = subprocess.Popen([os.path.join(build, program), *rest], stdout=subprocess.PIPE)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{build}: {command}: {process.returncode}")
    if not wanted:
        return usage.ru_utime + usage.ru_stime
    for line in said.splitlines():
        figure = json.loads(line)
        if figure["case"].startswith(wanted[0]) and figure["metric"] == wanted[1]:
            return figure["value"]
    raise SystemExit(f"{build}: {command} says nothing of {wanted}")


def median_between(differences):
    """The ranks between which the median is with 95 %, whatever the distribution."""
    n, below, rank = len(differences), 0.0, 0
    while below + math.comb(n, rank) / 2**n <= 0.025:
        below += math.comb(n, rank) / 2**n
        rank += 1
    return differences[max(rank - 1, 0)], differences[n - max(rank, 1)]


def compare(builds, command, wanted, seconds):
    """The figures of both, pair by pair."""
    for build in builds:
        run(build, command, wanted)
    pairs, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        first = len(pairs) % 2
        figures = [0.0, 0.0]
        for side in (first, 1 - first):
            figures[side] = run(builds[side], command, wanted)
        pairs.append(figures)
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--only", default="", help="loads whose names match")
    args = parser.parse_args()
    print("| what | before | now | difference | with 95 % between | pairs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, command, wanted in LOADS:
        if not re.search(args.only, name):
            continue
        pairs = compare((args.before, args.now), command, wanted, args.seconds)
        before, now = (statistics.median(side) for side in zip(*pairs))
        differences = sorted(100 * (b / a - 1) for a, b in pairs)
        low, high = median_between(differences)
        unit = wanted[1].split("_")[-1] if wanted else "s"
        figures = f"{before:.4g} {unit} | {now:.4g} {unit}"
        median = f"{statistics.median(differences):+.1f} % | {low:+.1f} to {high:+.1f} %"
        print(f"| {name} | {figures} | {median} | {len(pairs)} |", flush=True)


if __name__ == "__main__":
    main()
