#!/usr/bin/env python3
"""Two builds side by side: what the same loads take in the one and in the other.

    tests/bench/before_after.py BEFORE NOW [--seconds 600] [--only REGEX] [--on 0,1 --on 2,3 ...]

BEFORE and NOW are build folders with coppice-bench, coppiced, coppicectl and sched_count. A load is
short, and is run by the one and by the other in turns, in pairs of which either is first as often.
Told are the medians of both, the median of the differences within the pairs, and between which of
them it is with 95 %, by ranks: nothing is thought of how noise is distributed. What other processes
do to one run they mostly do to both, least where a run is shorter than a turn of theirs. Of
`rounds` it is the processor's time, as sched_count says it.

Loads share the time; who is known within --within percent leaves its share to the others. With
--on, as many loads run at once as it is given, each on cores of its own."""
import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

TINY = "-q 4 --kv-heads 2 --dim 16 --pool 64M"
CLIENTS = "tests/coppice-bench clients -j -b cpu"
SPINNING = "tests/coppice-bench ring -j -o spinning"
ROUND = ("", "round_us")
# What it is called, how it is run, and what is taken of it: case and metric.
LOADS = [
    ("rounds: nops of one", "tests/sched_count nop 1 1 150000", ROUND),
    ("rounds: nops of eight", "tests/sched_count nop 8 1 40000", ROUND),
    ("rounds: nops of eight of three users", "tests/sched_count nop 8 3 40000", ROUND),
    ("rounds: tokens of one, tiny", "tests/sched_count token 1 1 4000", ROUND),
    ("rounds: tokens of eight, tiny", "tests/sched_count token 8 1 600", ROUND),
    ("rounds: tokens of eight of three users, tiny", "tests/sched_count token 8 3 600", ROUND),
    ("rounds: tokens of one, 32/8 heads", "tests/sched_count large 1 1 300", ROUND),
    ("rounds: tokens of eight of three users, 32/8 heads", "tests/sched_count large 8 3 40", ROUND),
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
RUN_S = 30  # what takes longer hangs
TURN_S = 2  # of a load, before another has its turn
PAIRS_MIN = 6  # fewer say nothing with 95 %
PAIRS_KNOWN = 20
GRACE_S = 10  # for what is under way at the end


def run(build, command, wanted):
    """The metric of the first case that is called so."""
    program, *rest = command.split()
    process = subprocess.Popen(
        [os.path.join(build, program), *rest],
        cwd=build,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode:
        raise RuntimeError(f"{build}: {command}: {process.returncode}")
    for line in said.splitlines():
        figure = json.loads(line)
        if figure["case"].startswith(wanted[0]) and figure["metric"] == wanted[1]:
            return figure["value"]
    raise RuntimeError(f"{build}: {command} says nothing of {wanted}")


def median_between(differences):
    """The ranks between which the median is with 95 %, whatever the distribution."""
    n, below, rank = len(differences), 0.0, 0
    while below + math.comb(n, rank) / 2**n <= 0.025:
        below += math.comb(n, rank) / 2**n
        rank += 1
    return differences[max(rank - 1, 0)], differences[n - max(rank, 1)]


class Load:
    """A load and its figures, pair by pair; of one worker at a time."""

    def __init__(self, name, command, wanted):
        self.name, self.command, self.wanted = name, command, wanted
        self.pairs, self.spent_s, self.busy, self.fault = [], 0.0, False, None

    def differences(self):
        return sorted(100 * (now / before - 1) for before, now in self.pairs)

    def known_within(self, percent):
        if len(self.pairs) < PAIRS_KNOWN:
            return False
        low, high = median_between(self.differences())
        return high - low <= 2 * percent

    def turn(self, builds, end):
        """Pairs; the first run of each build is of none."""
        if not self.pairs:
            for build in builds:
                run(build, self.command, self.wanted)
        start = time.monotonic()
        until = min(start + TURN_S, end)
        while time.monotonic() < until:
            first = len(self.pairs) % 2
            figures = [0.0, 0.0]
            for side in (first, 1 - first):
                figures[side] = run(builds[side], self.command, self.wanted)
            self.pairs.append(figures)
        self.spent_s += time.monotonic() - start

    def row(self):
        if self.fault or len(self.pairs) < PAIRS_MIN:
            return f"| {self.name} | {self.fault or 'too few pairs'} |"
        before, now = (statistics.median(side) for side in zip(*self.pairs))
        differences = self.differences()
        low, high = median_between(differences)
        unit = self.wanted[1].split("_")[-1]
        figures = f"{before:.4g} {unit} | {now:.4g} {unit}"
        median = f"{statistics.median(differences):+.1f} % | {low:+.1f} to {high:+.1f} %"
        return f"| {self.name} | {figures} | {median} | {len(self.pairs)} |"


class Comparison:
    """Loads that workers take turns of until all is known, or the time is over."""

    def __init__(self, builds, loads, within, end):
        self.builds, self.loads, self.within, self.end = builds, loads, within, end
        self.lock = threading.Lock()

    def take(self):
        """The load that had the least time; None: none is left."""
        with self.lock:
            free = [
                load
                for load in self.loads
                if not (load.busy or load.fault or load.known_within(self.within))
            ]
            if not free or time.monotonic() >= self.end:
                return None
            load = min(free, key=lambda load: load.spent_s)
            load.busy = True
            return load

    def work(self, cores):
        if cores:
            # of this thread, and of what it starts
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
        while load := self.take():
            try:
                load.turn(self.builds, self.end)
            except RuntimeError as fault:
                load.fault = fault
            load.busy = False


def folder(path):
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no build folder {path}")
    return os.path.abspath(path)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False
    )
    parser.add_argument("before", type=folder)
    parser.add_argument("now", type=folder)
    parser.add_argument("--seconds", type=float, default=600, help="of all loads together")
    parser.add_argument("--within", type=float, default=0.2, help="percent, either way")
    parser.add_argument("--only", default="", help="loads whose names match")
    parser.add_argument("--on", action="append", metavar="CORES", help="of one load at a time")
    parser.add_argument("--pairs", help="a file for the figures of all pairs")
    return parser.parse_args()


def main():
    args = arguments()
    loads = [Load(*load) for load in LOADS if re.search(args.only, load[0])]
    end = time.monotonic() + args.seconds
    comparison = Comparison((args.before, args.now), loads, args.within, end)
    workers = [
        threading.Thread(target=comparison.work, args=(cores,), daemon=True)
        for cores in args.on or [None]
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(end + GRACE_S - time.monotonic(), 0))
    print("| what | before | now | difference | with 95 % between | pairs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for load in loads:
        print(load.row())
    if args.pairs:
        with open(args.pairs, "w", encoding="utf-8") as file:
            json.dump({load.name: load.pairs for load in loads}, file)
    sys.exit(any(load.fault for load in loads))


if __name__ == "__main__":
    main()
