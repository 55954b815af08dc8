"""Where the threads of some processes are while something is timed: on a core, waiting for one, or
asleep; on which cores, and beside whom.

    watch = Watch({"python": os.getpid(), "daemon": daemon.pid})
    watch.begin()
    for each token: ...; watch.look()
    watch.end()
    print(watch.told("token"))

From /proc alone. Times are the scheduler's (schedstat), so a thread that is slow because it waits
for a core, or for others, is told from one that is slow while it has a core: its core is, by its
clock, or by who shares it. A look costs some 20 us a thread.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LEAST_SHARE = 0.005  # of the time on a core; who has less is left out
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Thread:
    of: str
    pid: int
    tid: int

    @property
    def folder(self) -> str:
        return f"/proc/{self.pid}/task/{self.tid}"


@dataclass
class Count:
    """Of a thread since it began. ms but for the switches."""

    on_core: float
    waiting: float
    by_itself: int
    by_force: int


@dataclass
class Steal:
    """Of all processors, ms: at work, and taken by who runs this machine."""

    busy: float
    stolen: float


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it has ended
        return ""


def pids_of(program: str) -> list[int]:
    """Whose command line begins with a program of that name, wherever it is."""
    named = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if os.path.basename(read(f"/proc/{pid}/cmdline").split("\0")[0]) == program:
            named.append(int(pid))
    return sorted(named)


def threads_of(processes: dict[str, int]) -> list[Thread]:
    found = []
    for of, pid in processes.items():
        try:
            tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
        except OSError:
            continue
        found += [Thread(of, pid, tid) for tid in tids]
    return found


def count_of(thread: Thread) -> Count | None:
    times = read(f"{thread.folder}/schedstat").split()
    lines = read(f"{thread.folder}/status").splitlines()
    switches = {line.split()[0]: int(line.split()[1]) for line in lines if "_ctxt_switches" in line}
    if len(times) < 2 or len(switches) < 2:
        return None
    return Count(
        int(times[0]) / 1e6,
        int(times[1]) / 1e6,
        switches["voluntary_ctxt_switches:"],
        switches["nonvoluntary_ctxt_switches:"],
    )


def state_of(thread: Thread) -> tuple[int, bool] | None:
    """The core that it is or was last on, and whether it wants one."""
    fields = read(f"{thread.folder}/stat").rpartition(")")[2].split()
    return (int(fields[36]), fields[0] == "R") if len(fields) > 36 else None


def machine() -> Steal:
    fields = [1e3 * int(x) / TICKS for x in read("/proc/stat").splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, stolen = fields
    return Steal(user + nice + system + irq + softirq, stolen)


def siblings_of(core: int) -> set[int]:
    """With it, those that share its core, by what the machine says of itself."""
    text = read(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").strip()
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found or {core}


def loop_ms() -> float:
    """The same work each time, ms of this thread's time on a core: how fast that is just now."""
    least = float("inf")
    for _ in range(5):
        begun = time.thread_time()
        for _ in range(200_000):
            pass
        least = min(least, time.thread_time() - begun)
    return 1e3 * least


class Watch:
    """processes: pids by name. The first one's main thread is who is asked about."""

    def __init__(self, processes: dict[str, int]) -> None:
        self.processes = processes
        self.first = Thread(*next((of, pid, pid) for of, pid in processes.items()))
        self.n_looks = 0

    def begin(self) -> None:
        self.cores: dict[Thread, Counter[int]] = {}
        self.beside: Counter[Thread] = Counter()
        self.n_looks = 0
        self.before = {thread: count_of(thread) for thread in threads_of(self.processes)}
        self.machine, self.begun = machine(), time.perf_counter()

    def look(self) -> None:
        """Asked by the first one's main thread: it has a core then."""
        states = {thread: state_of(thread) for thread in self.before}
        own = states.get(self.first)
        near = siblings_of(own[0]) if own else set()
        for thread, state in states.items():
            if state and state[1]:
                self.cores.setdefault(thread, Counter())[state[0]] += 1
                self.beside[thread] += thread != self.first and state[0] in near
        self.n_looks += 1

    def end(self) -> None:
        self.ms = 1e3 * (time.perf_counter() - self.begun)
        now = machine()
        self.busy, self.stolen = now.busy - self.machine.busy, now.stolen - self.machine.stolen
        self.counts: dict[Thread, Count] = {}
        for thread, before in self.before.items():
            after = count_of(thread)
            if before and after:
                self.counts[thread] = Count(
                    after.on_core - before.on_core,
                    after.waiting - before.waiting,
                    after.by_itself - before.by_itself,
                    after.by_force - before.by_force,
                )
        self.names = {thread: read(f"{thread.folder}/comm").strip() for thread in self.counts}

    def busy_threads(self) -> list[Thread]:
        """The first one, and then who was on a core at all, the longest first."""
        others = [t for t, c in self.counts.items() if c.on_core >= LEAST_SHARE * self.ms]
        others = sorted((t for t in others if t != self.first), key=lambda t: -self._of(t).on_core)
        return [self.first, *others]

    def _of(self, thread: Thread) -> Count:
        return self.counts[thread]

    def _line(self, thread: Thread, n: int) -> str:
        c = self._of(thread)
        asleep = max(self.ms - c.on_core - c.waiting, 0.0)
        cores = self.cores.get(thread, Counter()).most_common(3)
        where = ", ".join(f"{core} ({times})" for core, times in cores)
        name = f"{thread.of}: {self.names[thread]}"
        ms = " | ".join(f"{x / n:.2f}" for x in (c.on_core, c.waiting, asleep))
        return f"| {name} | {ms} | {c.by_itself / n:.1f} | {c.by_force / n:.1f} | {where} |"

    def told(self, unit: str, n: int) -> str:
        """A table of what a unit takes, of n of them, and who was beside the first one."""
        lines = [
            f"| thread | on a core, ms a {unit} | waiting for one | asleep | switches by itself "
            f"| by force | seen at work on core (times of {self.n_looks}) |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [self._line(thread, n) for thread in self.busy_threads()]
        near = [f"{t.of}: {self.names.get(t, '?')} {k}" for t, k in self.beside.items() if k]
        lines += [
            "",
            f"on {self.first.of}'s core, or one that shares it, in {self.n_looks} looks: "
            f"{', '.join(near) or 'nobody of these'}",
            f"the machine: {self.busy / self.ms:.2f} of {os.cpu_count()} processors at work, "
            f"{self.stolen / n:.2f} ms a {unit} taken by its host",
        ]
        return "\n".join(lines)
