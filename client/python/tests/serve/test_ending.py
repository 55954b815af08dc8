"""How a server ends, what is told to those who wait meanwhile, and a daemon that hangs."""

import http.client
import json
import os
import signal
from pathlib import Path

import pytest

from serving import Daemon, Server, serving, wait_for
from test_bad_input import GOOD, post

_IMPATIENT = """
import sys
from coppice.serve import __main__, worker

worker.DRAIN_S, worker.SILENT_S = 0.3, 1.5
worker._TELL_S, worker._STOP_S = 0.3, 1.0
sys.exit(__main__.main())
"""
IMPATIENT = ("-c", _IMPATIENT)
LONG = {**GOOD, "max_tokens": 7000}


@pytest.fixture
def own_daemon(tmp_path):
    one = Daemon(tmp_path)
    yield one
    one.process.send_signal(signal.SIGCONT)
    one.end()


def asked(server, **options):
    """What is being computed."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", "/v1/completions", json.dumps({**LONG, **options}))
    return link


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_under_way_at_the_end_is_told_so(daemon, folder, number):
    server = Server(folder, daemon.socket, program=IMPATIENT)
    try:
        wait_for(server.is_ready)
        streamed, whole = asked(server, stream=True), asked(server)
        begun = streamed.getresponse()
        begun.read(100)
        wait_for(lambda: server.counter("coppice_sequences") == 2)
        server.process.send_signal(number)
        assert b"the server ends; come back later" in begun.read()
        answer = whole.getresponse()
        told = json.loads(answer.read())["error"]["message"]
        assert answer.status == 503 and told == "the server ends; come back later"
        streamed.close()
        whole.close()
        assert server.process.wait(10) in (0, 130, -number)
    finally:
        server.end()


def test_a_server_ends_whose_daemon_hangs(own_daemon, folder):
    """Who waits is told so, and no thread that waits for the daemon keeps the process."""
    server = Server(folder, own_daemon.socket, program=IMPATIENT)
    try:
        wait_for(server.is_ready)
        link = asked(server, stream=True)
        answer = link.getresponse()
        answer.read(100)
        own_daemon.process.send_signal(signal.SIGSTOP)
        assert server.get("/metrics")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert b"the server ends; come back later" in answer.read()
        link.close()
        server.process.wait(10)
    finally:
        server.process.kill()
        server.end()


def test_what_is_nearly_done_is_finished(daemon, folder):
    with serving(folder, daemon.socket) as server:
        link = asked(server, stream=True, max_tokens=2000)
        answer = link.getresponse()
        answer.read(100)
        server.process.send_signal(signal.SIGTERM)
        assert answer.read().endswith(b"data: [DONE]\n\n")
        link.close()


def children(process):
    of = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in of.read_text().split()]


def is_there(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_workers_end_with_a_parent_that_is_killed(daemon, folder):
    with serving(folder, daemon.socket, "--workers=2") as server:
        wait_for(lambda: server.counter("coppice_ready") == 2)
        workers = children(server.process)
        assert len(workers) >= 2
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        wait_for(lambda: not any(map(is_there, workers)), limit=20)


def test_a_daemon_that_hangs(own_daemon, folder):
    """It is said, /metrics go on, and so does the server once the daemon does."""
    with serving(folder, own_daemon.socket, program=IMPATIENT) as server:
        assert post(server, GOOD)[0] == 200
        own_daemon.process.send_signal(signal.SIGSTOP)
        assert server.get("/metrics")[0] == 200
        wait_for(lambda: server.get("/health")[0] == 503, limit=10)
        assert "the daemon does not answer" in server.get("/health")[1]
        status, error, _ = post(server, GOOD)
        assert status == 503 and "the daemon does not answer" in error["error"]["message"]
        wait_for(lambda: server.counter("coppice_ready") == 0, limit=10)
        own_daemon.process.send_signal(signal.SIGCONT)
        wait_for(server.is_ready, limit=10)
        assert post(server, GOOD)[0] == 200
