"""What all tests here have in common: one daemon, one checkpoint, one server."""

import pytest

import checkpoint
from serving import Daemon, serving


def started(tmp_path_factory):
    one = Daemon(tmp_path_factory.mktemp("daemon"))
    yield one
    one.end()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    yield from started(tmp_path_factory)


@pytest.fixture(scope="module")
def own_daemon(tmp_path_factory):
    """Of the tests of one file alone."""
    yield from started(tmp_path_factory)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Of a checkpoint with a tokenizer."""
    return checkpoint.write(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="session")
def server(daemon, folder):
    with serving(folder, daemon.socket, "--max-body-bytes=100000", "--max-streams=300") as one:
        yield one
