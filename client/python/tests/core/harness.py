"""A daemon on the CPU's backend, and what can be counted of it and of this process."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import coppice

ROOT = Path(__file__).resolve().parents[4]
CHECKPOINT = ROOT / "tests" / "model"
DAEMON = os.environ.get("COPPICE_DAEMON", str(ROOT / "build" / "check" / "daemon" / "coppiced"))
CONFIG = """[coppiced]
backend = cpu
pool = 64M
extent = 2M
lend_weights = 1
log_level = warning
spin_us = 0
"""
GREEDY = CHECKPOINT / "fixture" / "trained"


class Daemon:
    """coppiced at a socket of its own, in a folder that is gone with the test."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "sock")
        config = folder / "coppiced.conf"
        config.write_text(CONFIG)
        command = [DAEMON, "--config", str(config), "--socket", self.socket]
        self.process = subprocess.Popen(command)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(10) == 0


def await_socket(socket: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return coppice.connect(socket).close()
        except coppice.NoDaemon:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    daemon = Daemon(folder)
    try:
        await_socket(daemon.socket, daemon.process)
        yield daemon
    finally:
        if daemon.process.returncode is None:
            daemon.end()


def tidy() -> None:
    """What is left then is here to stay, like all that was imported: nobody looks through it again,
    and a collection within a test sees what the test has made."""
    gc.collect()
    gc.freeze()


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def n_arena_maps() -> int:
    return Path("/proc/self/maps").read_text().count("coppice")


def await_seqs(connection: coppice.Connection, n: int) -> None:
    """Until the daemon has so many sequences of the connection."""
    deadline = time.monotonic() + 10
    while connection.stats().n_seqs != n:
        assert time.monotonic() < deadline, connection.stats()
        time.sleep(0.01)


def large_weights(folder: Path, n_rows: int = 16384) -> Path:
    """Zeros that have no place on the disk, and take the daemon a moment to read."""
    n_bytes = n_rows * 4096 * 4
    shape = f'"dtype":"F32","shape":[{n_rows},4096],"data_offsets":[0,{n_bytes}]'
    head = f'{{"zeros":{{{shape}}}}}'.encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + n_bytes)
    return folder


def children_of(pid: int) -> list[int]:
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for text in texts for child in text.split()]


@contextlib.contextmanager
def standing_loader(daemon: Daemon) -> Iterator[None]:
    """The process that reads the files, which has just begun to."""
    end = time.monotonic() + 10
    while not (loaders := children_of(daemon.process.pid)) and time.monotonic() < end:
        pass
    [loader] = loaders
    os.kill(loader, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(loader, signal.SIGCONT)
