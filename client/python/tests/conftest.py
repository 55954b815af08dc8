"""A daemon on the CPU's backend for all tests, and what must be left behind by each: nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import coppice

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = ROOT / "tests" / "model"
DAEMON = os.environ.get("COPPICE_DAEMON", str(ROOT / "build" / "check" / "daemon" / "coppiced"))
CONFIG = "[coppiced]\npool = 64M\nextent = 2M\nlog_level = warning\n"
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


def await_daemon(daemon: Daemon) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return coppice.connect(daemon.socket).close()
        except coppice.NoDaemon:
            assert daemon.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Daemon]:
    daemon = Daemon(folder)
    try:
        await_daemon(daemon)
        yield daemon
    finally:
        if daemon.process.returncode is None:
            daemon.end()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        os.environ["COPPICE_SOCKET"] = daemon.socket
        yield daemon


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """One that a test may kill."""
    with running(tmp_path) as daemon:
        yield daemon


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def n_arena_maps() -> int:
    return Path("/proc/self/maps").read_text().count("coppice")


@pytest.fixture
def leaves_nothing(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test there are as many descriptors and mappings as before it."""
    gc.collect()
    before = n_descriptors(), n_arena_maps()
    yield
    request.node.funcargs.clear()
    gc.collect()
    assert (n_descriptors(), n_arena_maps()) == before


@pytest.fixture
def connection(daemon: Daemon, leaves_nothing: None) -> Iterator[coppice.Connection]:
    with coppice.connect(daemon.socket) as connection:
        yield connection


@pytest.fixture
def lane(connection: coppice.Connection) -> coppice.Lane:
    return connection.lane()


@pytest.fixture
def model(connection: coppice.Connection) -> coppice.Model:
    """The trained model of tests/model, whose tokens are bytes."""
    return coppice.load_model(connection, CHECKPOINT)


@pytest.fixture
def small(connection: coppice.Connection) -> coppice.Model:
    """A model whose layers a test computes."""
    return connection.model("small", n_layers=2, n_q_heads=4, n_kv_heads=2, head_dim=16)


def await_seqs(connection: coppice.Connection, n: int) -> None:
    """Until the daemon has so many sequences of the connection."""
    deadline = time.monotonic() + 10
    while connection.stats().n_seqs != n:
        assert time.monotonic() < deadline, connection.stats()
        time.sleep(0.01)
