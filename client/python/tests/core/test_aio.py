"""The same for asyncio: the loop goes on, and a task that is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from harness import CHECKPOINT, Daemon, await_seqs, large_weights, standing_loader
from test_threads import Blocking, blocking, standing_still
from test_tokens import ANSWER, PROMPT

import coppice
from coppice import aio


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def say(lane: coppice.Lane, model: coppice.Model, n: int, salt: int = 0) -> bytes:
    out = bytearray()
    async with aio.opened(lane, model, PROMPT, salt=salt) as seq:
        todo = PROMPT[(await aio.settled(seq)).cached :]
        for _ in range(n):
            [row] = await aio.rows(seq.decode(todo))
            todo = [row.ids[0]]
            out += bytes(todo)
    return bytes(out)


def test_agents_share_a_loop_and_lanes(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        told: list[coppice.Progress] = []
        with await aio.connect(daemon.socket) as connection:
            model = await aio.load_model(connection, CHECKPOINT, progress=told.append)
            lanes = [await aio.lane(connection) for _ in range(3)]
            said = await asyncio.gather(*(say(lanes[i % 3], model, 12) for i in range(12)))
            assert set(said) == {ANSWER[:12]} and told[-1].n_done > 0
            assert connection.stats().n_seqs == 0
            assert not aio._bells

    run(work())


def test_the_loop_goes_on_meanwhile(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = await aio.load_model(connection, CHECKPOINT)
            task = asyncio.create_task(say(await aio.lane(connection), model, 4, salt=31))
            n = 0
            while not task.done():
                await asyncio.sleep(0.001)
                n += 1
            assert n > 5 and await task == ANSWER[:4]

    run(work())


async def longest_pause(task: asyncio.Future[Any]) -> float:
    """Of the loop, until the task is done."""
    longest, before = 0.0, time.monotonic()
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
    return longest


class Waiting:
    """What is awaited while the daemon stands still; its lane has a descriptor."""

    def __init__(self, of: Blocking) -> None:
        self.of, self.lane = of, of.connection.lane(pollable=True)
        self.seq, self.text = self.lane.open(of.model, [1, 2]), self.lane.open(of.program, [3])
        self.text.decode([1]).wait()


async def opened(at: Waiting) -> None:
    async with aio.opened(at.lane, at.of.model, [5]) as seq:
        assert not seq.closed


AWAITED: dict[str, Callable[[Waiting], Coroutine[Any, Any, object]]] = {
    "connect": lambda at: aio.connect(at.of.daemon.socket),
    "stats": lambda at: aio.stats(at.of.connection),
    "lane": lambda at: aio.lane(at.of.connection),
    "load_model": lambda at: aio.load_model(at.of.connection, CHECKPOINT),
    "open_weights": lambda at: aio.open_weights(at.of.connection, CHECKPOINT),
    "loaded": lambda at: aio.loaded(at.of.weights),
    "open": lambda at: aio.open(at.lane, at.of.model, [5]),
    "open_many": lambda at: aio.open_many(at.lane, [(at.of.model, [5]), (at.of.model, [6])]),
    "opened": opened,
    "fork": lambda at: aio.fork(at.seq),
    "state": lambda at: aio.state(at.seq),
    "pin": lambda at: aio.pin(at.seq, 1.0),
    "rows": lambda at: aio.rows(at.text.decode([1])),
    "ticket": lambda at: aio.ticket(at.lane, at.lane.nop()),
    "close": lambda at: aio.close(at.seq),
    "close_lane": lambda at: aio.close(at.lane),
    "close_arena": lambda at: aio.close(at.of.arena),
    "close_weights": lambda at: aio.close(at.of.weights),
}


@pytest.mark.parametrize("call", AWAITED)
def test_the_loop_goes_on_while_the_daemon_does_not(
    own_daemon: Daemon, leaves_nothing: None, call: str
) -> None:
    async def work() -> None:
        with blocking(own_daemon) as of:
            at, loop = Waiting(of), asyncio.get_running_loop()
            with standing_still(own_daemon):
                loop.call_later(0.8, own_daemon.process.send_signal, signal.SIGCONT)
                begin = time.monotonic()
                task = asyncio.ensure_future(AWAITED[call](at))
                assert await longest_pause(task) < 0.5
                assert time.monotonic() - begin > 0.7
            await task

    run(work())


def test_pins(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = await aio.load_model(connection, CHECKPOINT)
            seq = await aio.open(await aio.lane(connection), model, PROMPT)
            pin = await aio.pin(seq, 10.0)
            await aio.unpin(connection, pin)
            with pytest.raises(coppice.NotFound):
                await aio.unpin(connection, pin)
            assert (await aio.stats(connection)).n_seqs == 1

    run(work())


def test_weights_are_waited_for(own_daemon: Daemon, leaves_nothing: None, tmp_path: Path) -> None:
    async def work() -> None:
        told: list[coppice.Progress] = []
        with await aio.connect(own_daemon.socket) as connection:
            weights = await aio.open_weights(connection, large_weights(tmp_path))
            with standing_loader(own_daemon):
                with pytest.raises(coppice.TimedOut):
                    await aio.loaded(weights, 0.0)
                assert not weights.ready
                task = asyncio.create_task(aio.loaded(weights))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            last = await aio.loaded(weights, 30.0, progress=told.append)
            assert weights.ready and told[-1] == last and last.n_done == last.n_bytes > 0
            await aio.close(weights)

    run(work())


def test_weights_that_are_none(daemon: Daemon, leaves_nothing: None, tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
        with await aio.connect(daemon.socket) as connection:
            weights = await aio.open_weights(connection, tmp_path)
            with pytest.raises(coppice.Invalid):
                await aio.loaded(weights, 30.0)

    run(work())


async def in_wait(seq: coppice.Sequence, seconds: float) -> asyncio.Task[coppice.Match]:
    """A thread that waits, and has the lane."""
    waiting = asyncio.create_task(asyncio.to_thread(seq.wait, seconds))
    while seq.lane.arm():
        assert not waiting.done()
        await asyncio.sleep(0.001)
    return waiting


def test_the_loop_goes_on_while_a_thread_has_the_lane(
    daemon: Daemon, leaves_nothing: None
) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = connection.model("aio", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)
            owner = (await aio.lane(connection)).open(model, list(range(64)), salt=5)
            lane = await aio.lane(connection)
            waiter = lane.open(model, list(range(64)), salt=5)
            number = lane.nop()
            waiting = await in_wait(waiter, 0.8)
            begin = time.process_time()
            assert await longest_pause(asyncio.create_task(aio.ticket(lane, number))) < 0.5
            assert time.process_time() - begin < 0.5
            with pytest.raises(coppice.TimedOut):
                await waiting
            owner.close()

    run(work())


def test_the_loop_goes_on_while_a_thread_has_the_lane_of_a_question(
    daemon: Daemon, leaves_nothing: None
) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = connection.model("aio", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)
            owner = (await aio.lane(connection)).open(model, list(range(64)), salt=6)
            lane = await aio.lane(connection)
            first, second = (lane.open(model, list(range(64)), salt=6) for _ in range(2))
            waiting = await in_wait(first, 10)
            task = asyncio.create_task(until_settled(second))
            ends = asyncio.create_task(end_in_turn(owner, waiting, first))
            assert await longest_pause(task) < 0.5
            await ends

    run(work())


async def end_in_turn(
    owner: coppice.Sequence, waiting: asyncio.Task[coppice.Match], first: coppice.Sequence
) -> None:
    """The prompt passes from the owner to the first that waits, and then to the next."""
    await asyncio.sleep(0.7)
    await aio.close(owner)
    assert (await waiting).claimed
    await aio.close(first)


async def until_settled(seq: coppice.Sequence) -> None:
    assert (await aio.settled(seq)).pending == 0


def test_the_loop_goes_on_while_a_thread_has_the_lane_of_a_failure(
    daemon: Daemon, leaves_nothing: None
) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = coppice.load_model(connection, CHECKPOINT, max_positions=16)
            plain = connection.model("aio", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)
            owner = (await aio.lane(connection)).open(plain, list(range(64)), salt=7)
            lane = await aio.lane(connection)
            seq, waiter = lane.open(model, [1]), lane.open(plain, list(range(64)), salt=7)
            decode = seq.decode(list(range(1, 30)))
            assert not decode.failed
            while not decode.done():
                await asyncio.sleep(0.001)
            assert decode.failed
            waiting = await in_wait(waiter, 0.8)
            assert await longest_pause(asyncio.create_task(until_failed(decode))) < 0.5
            await asyncio.gather(waiting, return_exceptions=True)
            owner.close()

    run(work())


async def until_failed(decode: coppice.Decode) -> None:
    with pytest.raises(coppice.TooLong):
        await aio.rows(decode)


def test_a_cancelled_task_leaves_nothing(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = await aio.load_model(connection, CHECKPOINT)
            lane = await aio.lane(connection)
            tasks = [asyncio.create_task(say(lane, model, 1000, 400 + i)) for i in range(6)]
            await asyncio.sleep(0.3)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            await asyncio.to_thread(await_seqs, connection, 0)
            assert not aio._bells and await say(lane, model, 3) == ANSWER[:3]

    run(work())


def test_what_others_compute_is_awaited(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = connection.model("aio", n_layers=1, n_q_heads=2, n_kv_heads=1, head_dim=16)
            owner = (await aio.lane(connection)).open(model, list(range(64)))
            waiter = (await aio.lane(connection)).open(model, list(range(64)))
            with pytest.raises(coppice.TimedOut):
                await aio.settled(waiter, 0.05)
            task = asyncio.create_task(aio.settled(waiter))
            await asyncio.sleep(0.02)
            owner.close()
            assert (await task).pending == 0

    run(work())


def test_the_daemon_dies_under_a_task(own_daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        connection = await aio.connect(own_daemon.socket)
        model = await aio.load_model(connection, CHECKPOINT)
        task = asyncio.create_task(say(await aio.lane(connection), model, 1000))
        await asyncio.sleep(0.2)
        own_daemon.kill()
        with pytest.raises(coppice.DaemonGone):
            await asyncio.wait_for(task, 5)
        connection.close()

    run(work())


def test_a_lane_without_a_descriptor_is_refused(
    lane: coppice.Lane, model: coppice.Model
) -> None:
    async def work() -> None:
        seq = lane.open(model, PROMPT, salt=77)
        with pytest.raises(coppice.Invalid, match="aio.lane"):
            await aio.rows(seq.decode(PROMPT))

    run(work())


def test_a_lane_closed_under_a_task(daemon: Daemon, leaves_nothing: None) -> None:
    async def work() -> None:
        with await aio.connect(daemon.socket) as connection:
            model = await aio.load_model(connection, CHECKPOINT)
            lane = await aio.lane(connection)
            seq = await aio.open(lane, model, PROMPT * 3, salt=88)
            task = asyncio.create_task(aio.rows(seq.decode(PROMPT * 3)))
            await asyncio.sleep(0)
            lane.close()
            with pytest.raises(coppice.Closed):
                await task

    run(work())
