"""The daemon goes and comes back; the server says so, and goes on."""

import asyncio
import errno
import http.client
import json
import logging
import os
import socket
import subprocess
import threading
import time

import pytest

import checkpoint
import coppice
from serving import Daemon, Server, serving, wait_for
from coppice.generation.checkpoint import Checkpoint
from coppice.serve import metrics, worker
from coppice.serve.config import Config
from test_bad_input import GOOD, post


@pytest.fixture
def own_daemon(tmp_path):
    one = Daemon(tmp_path)
    yield one
    one.end()


def kill(daemon):
    daemon.process.kill()
    daemon.process.wait()


def stream(server, **options):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", "/v1/completions", json.dumps({**GOOD, "stream": True, **options}))
    return link


def test_the_daemon_ends_and_comes_back(own_daemon, folder):
    with serving(folder, own_daemon.socket) as server:
        link = stream(server, max_tokens=5000)
        answer = link.getresponse()
        answer.read(100)
        kill(own_daemon)
        assert b"the daemon is gone" in answer.read()
        link.close()
        wait_for(lambda: not server.is_ready())
        status, error, headers = post(server, GOOD)
        assert status == 503 and "no daemon" in error["error"]["message"]
        assert int(headers["Retry-After"]) >= 1
        own_daemon.start()
        wait_for(server.is_ready)
        assert post(server, GOOD)[0] == 200
        assert server.counter("coppice_streams") == 0


def test_an_idle_server_notices_that_the_daemon_is_gone(own_daemon, folder):
    with serving(folder, own_daemon.socket) as server:
        assert post(server, GOOD)[0] == 200
        kill(own_daemon)
        wait_for(lambda: not server.is_ready(), limit=5)


def drain(daemon, *options):
    daemon.ctl("drain", *options)


def test_a_server_whose_daemon_drains_is_not_ready(own_daemon, folder):
    with serving(folder, own_daemon.socket) as server:
        drain(own_daemon)
        wait_for(lambda: server.get("/health")[0] == 503, limit=5)
        assert "the daemon drains" in server.get("/health")[1]
        assert server.counter("coppice_ready") == 0 and post(server, GOOD)[0] == 503
        drain(own_daemon, "--off")
        wait_for(server.is_ready, limit=5)
        assert server.counter("coppice_ready") == 1 and post(server, GOOD)[0] == 200


def test_a_server_that_is_started_first(tmp_path, folder):
    server = Server(folder, str(tmp_path / "coppiced.sock"))
    try:
        wait_for(lambda: server.get("/health")[0] == 503)
        assert "no daemon" in server.get("/health")[1]
        assert server.get("/v1/models")[0] == 200
        daemon = Daemon(tmp_path)
        wait_for(server.is_ready)
        daemon.end()
    finally:
        server.end()


def test_a_model_that_is_not_computed(daemon, tmp_path):
    """It says which key of the config that is; and serves, once that is mended."""
    bare = checkpoint.without_tokenizer(tmp_path / "bare")
    good = (bare / "config.json").read_text()
    (bare / "config.json").unlink()
    (bare / "config.json").write_text(json.dumps({**json.loads(good), "hidden_act": "tanh"}))
    server = Server(bare, daemon.socket)
    body = {"model": "bare", "prompt": [1, 2], "max_tokens": 1}
    try:
        wait_for(lambda: 'hidden_act is \\"tanh\\"' in server.get("/health")[1])
        wait_for(lambda: "has to mend that" in post(server, body)[1]["error"]["message"])
        assert post(server, body)[0] == server.get("/health")[0] == 503
        assert server.counter("coppice_ready") == 0
        (bare / "config.json").write_text(good)
        wait_for(server.is_ready)
        assert post(server, body)[0] == 200
    finally:
        server.end()


def refuse(listener):
    """As a daemon of another version does: -EPROTO to the hello of id 1 to 127."""
    why = b"the client speaks version 6, the daemon 99: install the same of both"
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            hello = peer.recv(65536)
            peer.send(hello[:2] + b"\x10\x8d\x01\x1a" + bytes([len(why)]) + why)


def test_a_daemon_of_another_version(tmp_path, folder):
    """To come back later is of no use."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        threading.Thread(target=refuse, args=[listener], daemon=True).start()
        server = Server(folder, str(tmp_path / "sock"))
        try:
            wait_for(lambda: "install the same of both" in server.get("/health")[1])
            status, answer, _ = post(server, GOOD)
            told = answer["error"]["message"]
            assert status == 503 and "install the same of both" in told
            assert "has to mend that" in told and "later" not in told
        finally:
            server.end()
            listener.shutdown(socket.SHUT_RDWR)


def test_a_stream_that_is_hung_up_is_gone_within_a_token(server):
    """Which token: test_failures.py."""
    hung_up = server.counter("coppice_hung_up_total")
    n_tokens = server.counter("coppice_generated_tokens_total")
    link = stream(server, prompt=checkpoint.prompt(), max_tokens=7000)
    answer = link.getresponse()
    answer.read(10)
    assert server.counter("coppice_sequences") == 1
    answer.close()
    link.close()
    wait_for(lambda: server.counter("coppice_sequences") == 0, limit=5)
    assert server.counter("coppice_hung_up_total") == hung_up + 1
    assert server.counter("coppice_generated_tokens_total") < n_tokens + 7000


def test_several_workers_behind_one_port(daemon, folder):
    with serving(folder, daemon.socket, "--workers=2") as server:
        wait_for(lambda: server.counter("coppice_ready") == 2)
        answers = [post(server, {**GOOD, "prompt": checkpoint.prompt()}) for _ in range(6)]
        assert {status for status, _, _ in answers} == {200}
        texts = {answer["choices"][0]["text"] for _, answer, _ in answers}
        assert texts == {checkpoint.greedy()[:4]}
        assert server.counter("coppice_generated_tokens_total") == 24


def test_gauges_of_all_workers_that_are_alive(daemon, folder):
    """Whichever is asked: one that streams is heard of from the other, one that is gone is not."""
    with serving(folder, daemon.socket, "--workers=2") as server:
        wait_for(lambda: server.counter("coppice_ready") == 2)
        link = stream(server, prompt=checkpoint.prompt(), max_tokens=7000)
        answer = link.getresponse()
        answer.read(10)
        for _ in range(5):
            wait_for(lambda: server.counter("coppice_sequences") == 1, limit=5)
        answer.close()
        link.close()
        wait_for(lambda: server.counter("coppice_sequences") == 0, limit=5)


def test_a_worker_that_died_has_no_gauges(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (os.getpid(), ended.pid):
        (tmp_path / f"gauge_livesum_{pid}.db").touch()
        (tmp_path / f"counter_{pid}.db").touch()
    metrics._drop_dead(str(tmp_path))
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {
        f"gauge_livesum_{os.getpid()}.db",
        f"counter_{os.getpid()}.db",
        f"counter_{ended.pid}.db",
    }


def test_a_daemon_that_refuses_is_asked_ever_more_seldom(
    monkeypatch, caplog, tmp_path, own_daemon, folder
):
    asked = []

    def load_model(*_, progress, **__):
        asked.append(time.monotonic())
        progress(coppice.Progress((1, 2)))
        raise coppice.Unsupported(errno.EOPNOTSUPP, "weights are too large")

    async def run():
        one = worker.Worker(Config(str(folder), socket=own_daemon.socket), Checkpoint(folder))
        one.start()
        while len(asked) < 4:
            await asyncio.sleep(0.01)
        assert "weights are too large" in one.why
        one.stop()

    monkeypatch.setattr(coppice, "load_model", load_model)
    monkeypatch.setattr(worker, "REFUSED_S", (0.1, 0.3))
    with caplog.at_level(logging.WARNING, "coppice.serve"):
        asyncio.run(run())
    pauses = [b - a for a, b in zip(asked, asked[1:])]
    assert all(pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.3)))
    assert [r.getMessage() for r in caplog.records].count("weights are too large") == 1
