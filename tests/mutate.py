#!/usr/bin/env python3
"""Changes host code at random, one place at a time, and says which changes no test noticed.

    tests/mutate.py [-n N] [--seed S] [--only REGEX] [--tests REGEX] [--build FOLDER] [--seconds S]

Draws N places (20) in C files of proto, client/lib, kvstore, kernels and daemon, changes an operator, a number or a
condition there, builds, and runs the tests whose programs were built anew, shortest first, each with a time limit; a
failure counts if it comes twice. What no test fails by survives: either nothing can tell the two apart, or a test is
missing. The file is put back after each, and where the script is interrupted. No new place after --seconds.

--only: places in files whose path matches. --tests: only tests whose name matches are built and run, a survivor has then
survived those alone.

The build folder (build/mutate) is the script's own. It wants a tree without changes. Exit status: 0.
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

FOLDERS = ["proto", "client/lib", "kvstore", "kernels/*.c", "kernels/cpu", "kernels/group", "kernels/plan", "daemon"]
LIMIT_S = 60  # a test
LINKED = r"Linking C(?:UDA)? (?:executable|shared library|shared module|static library) (\S+)"
CHANGES = [  # what is looked for in a line, what stands there instead
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\bif \((.*)\)$", r"if (!(\1))"), (r"\b1\b", "0"), (r"\b0\b", "1"), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"\bmemory_order_(acquire|release|seq_cst)\b", "memory_order_relaxed"), (r"^(\t+)(\w+\(.*\);)$", r"\1;"),
]


def run(command, **how):
    return subprocess.run(command, capture_output=True, text=True, **how)


def passes(command):
    """Within the limit. What it started ends with it: a test that hangs has a daemon beside it."""
    quiet = subprocess.DEVNULL
    begun = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        return begun.wait(LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(begun.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        begun.wait()


def places(only):
    """(file, number of line, its text, what it becomes), of lines that are code."""
    found = []
    names = run(["git", "ls-files", "--", *FOLDERS]).stdout.split()
    for name in names:
        if not name.endswith(".c") or not re.search(only, name):
            continue
        comment = False
        for number, line in enumerate(open(name).read().split("\n")):
            begins = comment or line.lstrip().startswith("/*")
            comment = begins and "*/" not in line
            if begins or not line.startswith("\t") or '"' in line:
                continue
            for old, new in CHANGES:
                for match in re.finditer(old, line):
                    changed = line[: match.start()] + match.expand(new) + line[match.end():]
                    found.append((name, number, line, changed))
    return found


class Tests:
    """Those that are run, and what is built for them."""

    def __init__(self, build, chosen):
        listed = json.loads(run(["ctest", "--test-dir", build, "--show-only=json-v1"]).stdout)
        folder = os.path.abspath(build) + "/"
        self.build, self.programs, self.times = build, {}, {}
        for test in listed["tests"]:
            if re.search(chosen, test["name"]):
                files = {word[len(folder):] for word in test.get("command", []) if word.startswith(folder)}
                self.programs[test["name"]] = files
        self.targets = sorted(set().union(*self.programs.values())) if chosen else []

    def make(self):
        """The programs that were linked anew; None: it does not compile."""
        made = run(["cmake", "--build", self.build, "--", *self.targets])
        return set(re.findall(LINKED, made.stdout)) if made.returncode == 0 else None

    def verdict(self):
        """Which test failed; "" if none, None if it does not compile."""
        linked = self.make()
        if linked is None:
            return None
        wanted = [name for name, programs in self.programs.items() if programs & linked]
        for name in sorted(wanted, key=lambda n: self.times.get(n, 1)):
            begin = time.monotonic()
            command = ["ctest", "--test-dir", self.build, "-R", f"^{re.escape(name)}$"]
            failed = not passes(command)
            self.times[name] = time.monotonic() - begin
            if failed and not passes(command):
                return name
        return ""


def judge(place, tests):
    """The verdict with the place changed; the file as it was, and built, afterwards."""
    name, number, _, changed = place
    text = open(name).read()
    lines = text.split("\n")
    lines[number] = changed
    try:
        open(name, "w").write("\n".join(lines))
        return tests.verdict()
    finally:
        open(name, "w").write(text)
        tests.make()


def judge_all(left, tests, args, ret_killed, ret_survivors):
    begin = time.monotonic()
    while left and len(ret_killed) + len(ret_survivors) < args.n and time.monotonic() - begin < args.seconds:
        place = left.pop()
        name, number, line, changed = place
        by = judge(place, tests)
        if by is None:
            continue
        where = f"{name}:{number + 1}: {line.strip()} -> {changed.strip()}"
        (ret_killed if by else ret_survivors).append(where)
        print(f"killed by {by}: {where}" if by else f"SURVIVED: {where}", flush=True)


def stop(*_):
    sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="")
    parser.add_argument("--tests", default="")
    parser.add_argument("--build", default="build/mutate")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)  # the file is put back then too
    signal.signal(signal.SIGHUP, stop)
    if run(["git", "status", "--porcelain", "--untracked-files=no"]).stdout:
        sys.exit("mutate.py: the tree has changes; commit them first")
    if run(["cmake", "-S", ".", "-B", args.build, "-G", "Ninja", "-DBUILD_TESTING=ON"]).returncode:
        sys.exit("mutate.py: cmake fails")
    if run(["cmake", "--build", args.build]).returncode:  # ctest names no command of what is not built
        sys.exit("mutate.py: the tree does not build")
    tests = Tests(args.build, args.tests)
    print(f"seed {args.seed}", flush=True)
    left, killed, survivors = places(args.only), [], []
    random.Random(args.seed).shuffle(left)
    try:
        judge_all(left, tests, args, killed, survivors)
    finally:
        print(f"{len(killed)} killed, {len(survivors)} survived")
        for where in survivors:
            print(f"  {where}")


main()
