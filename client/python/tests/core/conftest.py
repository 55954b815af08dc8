"""What all tests here have in common: one daemon, and that nothing is left behind by a test."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import CHECKPOINT, Daemon, await_seqs, n_arena_maps, n_descriptors, running, tidy

import coppice


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


@pytest.fixture
def leaves_nothing(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test there are as many descriptors and mappings as before it."""
    tidy()
    before = n_descriptors(), n_arena_maps()
    yield
    request.node.funcargs.clear()
    gc.collect()
    assert (n_descriptors(), n_arena_maps()) == before


@pytest.fixture
def connection(
    daemon: Daemon, leaves_nothing: None, request: pytest.FixtureRequest
) -> Iterator[coppice.Connection]:
    """With it no sequence is left after the test, and no arena but the library's own two."""
    with coppice.connect(daemon.socket) as connection:
        yield connection
        request.node.funcargs.clear()
        gc.collect()
        if not connection.closed:
            await_seqs(connection, 0)
            assert connection.stats().n_arenas <= 2  # for prompts, and for rows


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
