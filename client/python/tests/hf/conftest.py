"""What all tests here have in common: one daemon, and that nothing is left behind by a test."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

from harness import Daemon, await_seqs, n_arena_maps, n_descriptors, running, tidy  # noqa: E402

import coppice  # noqa: E402

# torch's compiler works in this process, which has three functions for it, and takes it that what
# the processor has can be compiled for: else it tries each set of instructions first.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

collect_ignore_glob: list[str] = []
try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("torch", "transformers"):
        raise  # what is there and broken is a failure
    collect_ignore_glob.append("test_*.py")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where there is no torch there are no tests, and that is no failure."""
    if collect_ignore_glob:
        session.exitstatus = 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore_glob:
        terminalreporter.write_line("left out: torch or transformers is not here")


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[coppice.Connection]:
    """Its sequences are gone with the test; and so are descriptors and arenas, with itself."""
    tidy()
    before = n_descriptors(), n_arena_maps()
    with coppice.connect(daemon.socket) as connection:
        os.environ["COPPICE_SOCKET"] = daemon.socket
        yield connection
        gc.collect()
        await_seqs(connection, 0)
    gc.collect()
    assert (n_descriptors(), n_arena_maps()) == before
