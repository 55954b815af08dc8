"""A client that does not read ends its streams, before what it leaves grows without end."""

import asyncio
import json
import socket

import pytest

from coppice.generation.sampling import Logprob, Sampling
from coppice.generation.stream import Event, Stream
from coppice.serve import job as jobs
from serving import wait_for
from test_bad_input import GOOD, post


def ask_and_never_read(server):
    body = {**GOOD, "max_tokens": 8000, "n": 16, "logprobs": 20, "stream": True}
    text = json.dumps(body).encode()
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", server.port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(text)}\r\n\r\n"
    link.sendall(head.encode() + text)
    return link


def test_a_client_that_does_not_read_is_as_one_that_has_hung_up(server):
    hung_up = server.counter("coppice_hung_up_total")
    n_tokens = server.counter("coppice_generated_tokens_total")
    link = ask_and_never_read(server)
    try:
        wait_for(lambda: server.counter("coppice_hung_up_total") == hung_up + 1)
        wait_for(lambda: server.counter("coppice_sequences") == 0)
        wait_for(lambda: server.counter("coppice_streams") == 0)
        assert server.counter("coppice_generated_tokens_total") < n_tokens + 16 * 8000
        assert post(server, GOOD)[0] == 200
    finally:
        link.close()


class Worker:
    def __init__(self):
        self.cancelled = []

    def add(self, streams, job):
        pass

    def cancel(self, stream):
        self.cancelled.append(stream)


class Tokenizer:
    has_text = True

    def decoder(self, skip_special=True):
        return None


@pytest.mark.parametrize("top, most", [((), 10), (((1, -1.0),) * 4, 2)])
def test_what_is_left_unread_is_bounded(monkeypatch, top, most):
    """Logprobs count as tokens do."""
    monkeypatch.setattr(jobs, "MOST_BEHIND", 10)
    worker, stream = Worker(), Stream([1], Sampling(), 100)
    event = Event(stream, 1, Logprob(1, -1.0, top))

    async def run():
        with jobs.Job(worker, Tokenizer(), Sampling()) as job:
            job.add([stream])
            sending = asyncio.ensure_future(job.sent(asyncio.sleep(60)))
            await asyncio.sleep(0)
            for _ in range(most + 1):
                job.put(event)
            await asyncio.sleep(0)
            assert not sending.done()
            for _ in range(100):
                job.put(event)
            with pytest.raises(jobs.HungUp):
                await sending
            assert job._events.qsize() == most + 1

    asyncio.run(run())
    assert worker.cancelled == [stream]
