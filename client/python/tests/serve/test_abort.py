"""Whatever moment a signal's handler raises in, what an LLM has begun is over then."""

import collections
import random
import signal
import time

import pytest

import checkpoint
from coppice import LLM, Canceled
from coppice.generation.answer import Writer
from coppice.generation.batch import Batch

PROMPT, GREEDY = checkpoint.prompt(), checkpoint.greedy()
PROMPTS = [PROMPT[: 300 + i] for i in range(30)]
N_ABORTS = 30


class Abort(Exception):
    pass


def abort(*_):
    raise Abort


@pytest.fixture
def alarm():
    """Sets when the handler raises."""
    former = signal.signal(signal.SIGALRM, abort)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


@pytest.fixture
def llm(own_daemon, folder):
    with LLM(folder, socket=own_daemon.socket, progress=False) as one:
        yield one


def left(llm, daemon):
    """Streams, writers, and what the daemon has of them."""
    engine = llm._engine
    there = [*engine._queue, *engine._added]
    there += [stream for batch in engine._batches for stream in batch.there]
    return there, llm._writers, daemon.held()


def generate(llm):
    llm.generate(PROMPTS, temperature=0, max_tokens=6, n=2)


def stream(llm):
    for _ in llm.stream(PROMPT, temperature=0, max_tokens=60, n=3):
        pass


@pytest.mark.parametrize("call", [generate, stream])
def test_an_abort_at_any_moment_leaves_nothing(llm, own_daemon, alarm, call):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, found = random.Random(seed), collections.Counter()
    call(llm)
    begun = time.monotonic()
    call(llm)
    whole_s = time.monotonic() - begun
    for _ in range(N_ABORTS):
        try:
            alarm(rng.uniform(1e-5, whole_s))
            call(llm)
            alarm(0)
        except Abort:
            found["aborted"] += 1
        alarm(0)
        assert left(llm, own_daemon) == ([], {}, {})
        assert llm.generate(PROMPT, temperature=0, max_tokens=4)[0].text == GREEDY[:4]
    assert found["aborted"] > N_ABORTS / 4


# Where the handler's exception comes, each of them once.
PLACES = [
    (LLM, "_start"),
    (LLM, "_run"),
    (Writer, "take"),
    (LLM, "_drop"),
    (Batch, "_plan"),
    (Batch, "_take"),
    (Batch, "_leave"),
    (Batch, "close_those_that_left"),
]


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("kind, name", PLACES)
def test_an_abort_in_the_middle_of_the_books(llm, own_daemon, monkeypatch, kind, name, when):
    """Before a part of them is written, or behind it."""
    whole, calls = getattr(kind, name), []

    def broken(*given):
        calls.append(given)
        if when == "before" and len(calls) == 1:
            raise Abort
        result = whole(*given)
        if when == "behind" and len(calls) == 1:
            raise Abort
        return result

    monkeypatch.setattr(kind, name, broken)
    with pytest.raises(Abort):
        generate(llm)
    assert calls and left(llm, own_daemon) == ([], {}, {})
    assert llm.generate(PROMPT, temperature=0, max_tokens=4)[0].text == GREEDY[:4]


def test_a_stream_beside_one_that_is_broken_off(llm, own_daemon, monkeypatch):
    """It goes on where the books are right, as while the daemon computes; else it is told so."""
    other = llm.stream(PROMPT, temperature=0, max_tokens=5000)
    text = next(other).text
    whole = llm._engine._sleep

    def sleep(timeout):
        monkeypatch.setattr(llm._engine, "_sleep", whole)
        raise Abort

    monkeypatch.setattr(llm._engine, "_sleep", sleep)
    with pytest.raises(Abort):
        llm.generate("a", max_tokens=1000)
    for _ in range(20):
        text += next(other).text
    assert text == GREEDY[: len(text)] and len(text) > 20
    plan = Batch._plan
    monkeypatch.setattr(Batch, "_plan", lambda _: abort())
    with pytest.raises(Abort):
        generate(llm)
    monkeypatch.setattr(Batch, "_plan", plan)
    with pytest.raises(Canceled, match="ask once more"):
        list(other)
    assert left(llm, own_daemon) == ([], {}, {})
