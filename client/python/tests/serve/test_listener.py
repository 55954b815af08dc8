"""Connections that come at once go to all workers."""

import asyncio
import os
import socket
import threading

import pytest

from coppice.serve import __main__, listener
from coppice.serve.listener import OTHERS_S, Listener

N_CLIENTS = 60


@pytest.fixture
def bound():
    with socket.create_server(("127.0.0.1", 0)) as one:
        one.setblocking(False)
        yield one


def listeners_of(bound, n):
    return [Listener.of(socket.socket(fileno=os.dup(bound.fileno()))) for _ in range(n)]


class Clock:
    """In place of time, of which no more goes by than a test says."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


def test_the_next_is_left_to_others(bound, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(listener, "time", clock)
    first, second = listeners_of(bound, 2)
    links = [socket.create_connection(bound.getsockname()) for _ in range(3)]
    taken = [first.accept()[0]]
    with pytest.raises(BlockingIOError):
        first.accept()
    taken.append(second.accept()[0])
    clock.now += OTHERS_S
    taken.append(first.accept()[0])
    clock.now += OTHERS_S
    with pytest.raises(BlockingIOError):  # nobody is there, and it is free for whoever comes
        first.accept()
    links.append(socket.create_connection(bound.getsockname()))
    taken.append(first.accept()[0])
    for one in (first, second, *links, *taken):
        one.close()


async def serve(one, n_taken, ready, over):
    async def answer(_, writer):
        n_taken[one] += 1
        writer.close()

    async with await asyncio.start_server(answer, sock=one):
        ready.wait()
        while not over.is_set():
            await asyncio.sleep(0.01)


def test_loops_share_a_crowd(bound):
    workers, over = listeners_of(bound, 3), threading.Event()
    ready, n_taken = threading.Barrier(1 + len(workers)), dict.fromkeys(workers, 0)
    threads = [
        threading.Thread(target=lambda one=one: asyncio.run(serve(one, n_taken, ready, over)))
        for one in workers
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    links = [socket.create_connection(bound.getsockname()) for _ in range(N_CLIENTS)]
    for link in links:
        assert link.recv(1) == b""
        link.close()
    over.set()
    for thread in threads:
        thread.join()
    assert sum(n_taken.values()) == N_CLIENTS
    assert max(n_taken.values()) < 0.8 * N_CLIENTS


def test_what_is_written_goes_at_once():
    async def ask():
        seen = asyncio.get_running_loop().create_future()

        async def answer(_, writer):
            link = writer.get_extra_info("socket")
            seen.set_result(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with __main__._bound("127.0.0.1", 0) as one:
            async with await asyncio.start_server(answer, sock=Listener.of(one)) as server:
                _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.close()
                return await seen

    assert asyncio.run(ask())
