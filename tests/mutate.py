#!/usr/bin/env python3
"""Changes host code at random, one place at a time, and says which changes no test noticed.

    tests/mutate.py [-n N] [--seed S] [--only REGEX] [--tests REGEX] [--build FOLDER] [-j JOBS]
                    [--seconds S]

Draws N places (20) in C files of proto, client/lib, kvstore, kernels and daemon and changes an
operator, a number or a condition there, or leaves a call out. Of the tests that the file reaches
the nearest run, one after another, each built just before, until one fails: near is what commits
changed together with the file, and what its name, its header or its folder tells. A failure counts
if it comes twice, and only of a test that passes without the change. What these leave meets all the
others in the end, and then the nearest again under ASan, which sees leaks too. What survives that
is listed: either nothing can tell the two programs apart, or only a GPU can, or a test is missing.

Assertions, calls with a text of their own and comments are not changed, and what the compiler warns
of does not count. What is changed is a copy in the build folder (build/mutate), which is the
script's own. No new place after --seconds.

--only: places whose path:line matches. --tests: only tests whose name matches. Exit status: 0.
"""
import argparse
import filecmp
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

FOLDERS = [
    "proto", "client/lib", "kvstore", "kernels/*.c", "kernels/cpu", "kernels/group", "kernels/plan",
    "daemon",
]
# For a test that was never seen to pass. Another has as much, and ten times what it took.
LIMIT_S = 60
N_NEAR = 12  # tests
HAS_GPU = os.path.exists("/dev/nvidiactl")  # else its tests would be built to be skipped
N_COMMITS = 1500  # that are looked at, the last ones
MANY_FILES = 40  # a commit of as many says nothing of what belongs together
NO_CODE = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\''
CHANGES = [  # what is looked for in a line, what stands there instead
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
    (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\bif \((.*)\)$", r"if (!(\1))"),
    (r"\b1\b", "0"), (r"\b0\b", "1"), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"\bmemory_order_(acquire|release|seq_cst)\b", "memory_order_relaxed"),
    (r"^(\t+)(\w+\(.*\);)$", r"\1;"),
]


def run(command, **how):
    return subprocess.run(command, capture_output=True, text=True, **how)


def ends_well(command, limit_s):
    """Within the limit. What it started ends with it: a test that hangs has a daemon beside it."""
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    begun = subprocess.Popen(command, start_new_session=True, **quiet)
    try:
        return begun.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(begun.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        begun.wait()


def copy_tree(to):
    """The files of the tree as they are; those that are the same already keep their time."""
    names = set(run(["git", "ls-files", "-co", "--exclude-standard"]).stdout.split("\n")) - {""}
    names = {name for name in names if os.path.isfile(name)}
    for folder, _, files in os.walk(to):
        for file in files:
            path = os.path.join(folder, file)
            if os.path.relpath(path, to) not in names:
                os.unlink(path)
    for name in names:
        path = os.path.join(to, name)
        if not os.path.exists(path) or not filecmp.cmp(name, path, shallow=False):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(name, path)


def blank(match):
    """As many characters and lines; of a string a quote is left to be known by."""
    quote = '"' if match.group().startswith('"') else " "
    return re.sub(r"[^\n]", quote, match.group())


def statements(text):
    """(number of the first line, lines) of what its parentheses hold together, without comments."""
    begin, lines, depth = 0, [], 0
    for number, line in enumerate(re.sub(NO_CODE, blank, text, flags=re.DOTALL).split("\n")):
        if not lines:
            begin = number
        lines.append(line.rstrip())
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            yield begin, lines
            lines, depth = [], 0


class Place:
    """A line of a file, and what becomes of it."""

    def __init__(self, name, number, line, changed):
        self.name, self.number, self.line, self.changed = name, number, line, changed

    def __str__(self):
        return f"{self.name}:{self.number + 1}: {self.line.strip()} -> {self.changed.strip()}"


def places_of(name, text):
    for begin, lines in statements(text):
        whole = "\n".join(lines)
        if '"' in whole or re.match(r"\s*(static_)?assert\(", whole):
            continue
        for number, line in enumerate(lines, begin):
            for old, new in CHANGES if line.startswith("\t") else []:
                for match in re.finditer(old, line):
                    changed = line[: match.start()] + match.expand(new) + line[match.end():]
                    yield Place(name, number, line, changed)


def places(tree, only):
    names = [n for n in run(["git", "ls-files", "--", *FOLDERS]).stdout.split() if n.endswith(".c")]
    texts = {name: open(os.path.join(tree, name)).read() for name in names}
    found = [place for name, text in texts.items() for place in places_of(name, text)]
    return [place for place in found if re.search(only, f"{place.name}:{place.number + 1}")]


def commits():
    """The files of each."""
    command = ["git", "log", "--format=tformat:@", "--name-only", "-n", str(N_COMMITS)]
    found = [set(names.split()) for names in run(command).stdout.split("@")]
    return [names for names in found if len(names) < MANY_FILES]


class Test:
    def __init__(self, name, command, labels, build):
        self.name, self.labels = name, labels
        self.words = set(name.split("_")) - {"test"}
        own = build.folder + "/"
        self.programs = [word.removeprefix(own) for word in command if word.startswith(own)]
        self.files, self.includes, self.commits = set(), "", []
        if self.programs:
            ninja = run(["ninja", "-C", build.folder, "-t", "inputs", *self.programs])
            inputs = [path for path in ninja.stdout.split("\n") if path.startswith(build.tree)]
            self.files = {os.path.relpath(path, build.tree) for path in inputs}
        for file in self.files:
            if os.path.basename(file) == f"{name}.c":
                self.includes = open(os.path.join(build.tree, file)).read()
                self.commits = [names for names in build.commits if file in names]

    def nearness(self, name):
        """More for a test that is about the file, and some for one that is about its folder."""
        stem = os.path.basename(name)[:-2].split("_")
        shared = [any(word.startswith(part) for word in self.words) for part in stem]
        calls = f'#include "{name[:-2]}.h"' in self.includes
        folder = bool(set(name.split("/")[:-1]) & (self.words | set(self.labels)))
        together = sum(name in names for names in self.commits) / math.sqrt(len(self.commits) + 1)
        return 8 * together + 4 * all(shared) + 2 * sum(shared) + 3 * calls + folder


class Build:
    """A folder in which the copy is built, and what is known of its tests."""

    def __init__(self, tree, folder, jobs, *options):
        self.tree, self.folder, self.jobs, self.times, self.broken = tree, folder, jobs, {}, set()
        self.commits = commits()
        configure = ["cmake", "-S", tree, "-B", folder, "-G", "Ninja"]
        if run([*configure, "-DBUILD_TESTING=ON", "-DCOPPICE_WERROR=ON", *options]).returncode:
            sys.exit(f"mutate.py: cmake fails in {folder}")

    def tests(self, chosen):
        """By name. ctest itself names no command of what is not built."""
        text = open(os.path.join(self.folder, "tests", "CTestTestfile.cmake")).read()
        labelled = r'^set_tests_properties\(\[=\[(\w+)\]=\].* LABELS "([^"]*)"'
        labels = dict(re.findall(labelled, text, re.MULTILINE))
        commands = re.findall(r"^add_test\(\[=\[(\w+)\]=\] (.*)\)$", text, re.MULTILINE)

        def test(name, command):
            words = re.findall(r'"([^"]*)"', command)
            return Test(name, words, labels.get(name, "").split(";"), self)

        return {name: test(name, command) for name, command in commands
                if re.search(chosen, name) and (HAS_GPU or "gpu" not in labels.get(name, ""))}

    def make(self, targets=()):
        command = ["cmake", "--build", self.folder, "-j", str(self.jobs), "--", *targets]
        return run(command).returncode == 0

    def passes(self, test):
        begin = time.monotonic()
        limit_s = LIMIT_S + 10 * self.times.get(test.name, 0)
        command = ["ctest", "--test-dir", self.folder, "-R", f"^{re.escape(test.name)}$"]
        if not ends_well(command, limit_s):
            return False
        self.times[test.name] = max(time.monotonic() - begin, self.times.get(test.name, 0))
        return True

    def passes_unchanged(self, test, path, text):
        """Was it the change? The file is changed again afterwards."""
        changed = open(path).read()
        open(path, "w").write(text)
        passes = self.make(test.programs) and self.passes(test)
        open(path, "w").write(changed)
        return passes

    def killer(self, place, tests):
        """The first of the tests that fails by the change; "" if none, None if it is no program, or
        one with a warning."""
        path = os.path.join(self.tree, place.name)
        text = open(path).read()
        lines = text.split("\n")
        lines[place.number] = place.changed
        open(path, "w").write("\n".join(lines))
        try:
            for test in tests:
                if not self.make(test.programs):
                    return None
                if test.name in self.broken or self.passes(test) or self.passes(test):
                    continue
                if test.name in self.times or self.passes_unchanged(test, path, text):
                    return test.name
                self.broken.add(test.name)
            return ""
        finally:
            open(path, "w").write(text)


class Judge:
    def __init__(self, tree, args):
        self.plain = Build(tree, os.path.join(args.build, "plain"), args.jobs)
        self.address = Build(tree, os.path.join(args.build, "address"), args.jobs,
                             "-DCOPPICE_SANITIZE=address", "-DCOPPICE_BENCH=OFF")
        self.tests = self.plain.tests(args.tests)
        self.under_asan = self.address.tests(args.tests)

    def order(self, place):
        """Those that the file reaches, the nearest first, of as near ones the shortest."""
        def rank(test):
            return -test.nearness(place.name), self.plain.times.get(test.name, 1)

        return sorted((test for test in self.tests.values() if place.name in test.files), key=rank)

    def by_near(self, place):
        """Who killed it of the nearest; "" if none did, None as above."""
        return self.plain.killer(place, self.order(place)[:N_NEAR])

    def by_others(self, place):
        by = self.plain.killer(place, self.order(place)[N_NEAR:])
        if by == "":
            near = [test.name for test in self.order(place)[:N_NEAR]]
            there = [self.under_asan[name] for name in near if name in self.under_asan]
            by = self.address.killer(place, there)
            by = by and f"{by} under ASan"
        return by


def draw(left, judge, args, ret_survivors):
    """How many the nearest tests killed."""
    end, n_killed = time.monotonic() + args.seconds, 0
    while left and n_killed + len(ret_survivors) < args.n and time.monotonic() < end:
        place = left.pop()
        by = judge.by_near(place)
        if by is None:
            continue
        n_killed += bool(by)
        ret_survivors.extend([] if by else [place])
        print(f"killed by {by}: {place}" if by else f"left: {place}", flush=True)
    return n_killed


def sift(judge, inout_survivors):
    """How many of those that the nearest tests left the others killed."""
    left = inout_survivors[:]
    for place in left:
        by = judge.by_others(place)
        if by:
            inout_survivors.remove(place)
        print(f"killed by {by}: {place}" if by else f"SURVIVED: {place}", flush=True)
    return len(left) - len(inout_survivors)


def stop(*_):
    sys.exit(1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False)
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="")
    parser.add_argument("--tests", default="")
    parser.add_argument("--build", default="build/mutate")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    signal.signal(signal.SIGTERM, stop)  # what it started ends with it then too
    signal.signal(signal.SIGHUP, stop)
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1:handle_sigill=1")
    tree = os.path.join(args.build, "tree")
    copy_tree(tree)
    judge, survivors = Judge(tree, args), []
    print(f"seed {args.seed}", flush=True)
    left = places(tree, args.only)
    random.Random(args.seed).shuffle(left)
    n_killed = draw(left, judge, args, survivors)
    n_killed += sift(judge, survivors)
    print(f"{n_killed} killed, {len(survivors)} survived")
    for place in survivors:
        print(f"  {place}")


main()
