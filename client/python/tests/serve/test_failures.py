"""A call that fails ends the streams that it was for, and no others."""

import errno
import os

import pytest

import coppice
from coppice.generation.batch import Batch
from coppice.generation.engine import Engine
from coppice.generation.sampling import Sampling
from coppice.generation.stream import Stream

FAILURES = [coppice.NoRoom, coppice.LaneFull, coppice.Draining, coppice.Canceled]


class Match:
    def __init__(self, pending=0):
        self.cached, self.pending = 0, pending


class Seq:
    """What it is told to raise, a call at a time."""

    def __init__(self, pending=0, **failures):
        self.match, self.failures = Match(pending), failures

    def _call(self, name):
        if name in self.failures:
            raise self.failures[name]

    def ask(self):
        self._call("ask")

    def answer(self):
        self._call("answer")

    def trim(self, n_tokens):
        self._call("trim")

    def state(self):
        self._call("state")
        return self

    n_tokens = 0


class Lane:
    def __init__(self, *seqs, failure=None):
        self.seqs, self.failure = list(seqs), failure

    def open(self, model, ids):
        return self.seqs.pop(0)

    def decode(self, parts, **_):
        if self.failure is not None:
            raise self.failure
        return Pending()


class Pending:
    def done(self):
        return False


def error(kind):
    return kind(errno.EINVAL, "as the test wants it")


def batch_of(lane, n):
    events, closed = [], []
    batch = Batch(lane, None, events, closed.append)
    for _ in range(n):
        stream = Stream([1, 2], Sampling(), 4)
        stream.open(lane, None)
        batch.streams.append(stream)
    return batch, events, closed


@pytest.mark.parametrize("kind", [coppice.Draining, coppice.Canceled])
def test_an_entry_that_is_refused_ends_its_streams(kind):
    batch, events, closed = batch_of(Lane(Seq(), Seq(), failure=error(kind)), 2)
    batch.turn()
    assert [type(event.error) for event in events] == [kind, kind]
    assert batch.streams == [] and len(closed) == 2 and not batch.in_flight


def test_where_the_lane_is_full_it_is_tried_again():
    lane = Lane(Seq(), failure=error(coppice.LaneFull))
    batch, events, _ = batch_of(lane, 1)
    batch.turn()
    assert batch.is_full and not batch.in_flight and events == []
    lane.failure = None
    batch.turn()
    assert batch.in_flight and not batch.is_full and len(batch.streams) == 1


def test_where_the_pool_is_full_the_newest_ends_and_one_that_cannot_go_back():
    seqs = [Seq(), Seq(state=error(coppice.Canceled)), Seq()]
    batch, events, _ = batch_of(Lane(*seqs, failure=error(coppice.NoRoom)), 3)
    first, second, third = batch.streams
    batch.turn()
    ends = {event.stream: type(event.error) for event in events}
    assert ends == {second: coppice.Canceled, third: coppice.NoRoom}
    assert batch.streams == [first]


def test_where_the_pool_is_full_a_newer_stream_of_another_lane_makes_room():
    """Also where it is the lane's only one: it is tried again."""
    engine = Engine(Connection(), None, print, n_lanes=0)
    lanes = [Lane(Seq(), failure=error(coppice.NoRoom)) for _ in range(3)]
    (old, *_), (new, *_), (asking, *_) = batches = [batch_of(lane, 1) for lane in lanes]
    for number, (batch, _, _) in enumerate(batches):
        batch._is_newest = engine._is_newest
        batch.streams[0].number = number
    engine._batches, asking.streams[0].asked = [old, new, asking], True
    for _ in range(3):
        old.turn()
        assert old.is_full and not old.in_flight and batches[0][1] == []
    new.turn()
    assert [type(event.error) for event in batches[1][1]] == [coppice.NoRoom]
    lanes[0].failure = None
    old.turn()
    assert old.in_flight and not old.is_full
    engine._batches = []
    engine.close()


@pytest.mark.parametrize("kind", FAILURES)
def test_an_answer_that_fails_ends_its_stream(kind):
    batch, events, _ = batch_of(Lane(Seq(1, answer=error(kind)), Seq(1)), 2)
    first, second = batch.streams
    assert batch.hear()
    assert [(event.stream, type(event.error)) for event in events] == [(first, kind)]
    assert batch.streams == [second]


def test_a_daemon_that_is_gone_is_said():
    gone = error(coppice.DaemonGone)
    with pytest.raises(coppice.DaemonGone):
        batch_of(Lane(Seq(), failure=gone), 1)[0].turn()
    with pytest.raises(coppice.DaemonGone):
        batch_of(Lane(Seq(1, answer=gone)), 1)[0].hear()


class Connection:
    def __init__(self):
        self.unpinned = []
        self.ends = os.pipe()

    def fileno(self):
        return self.ends[0]

    def unpin(self, pin):
        self.unpinned.append(pin)

    def __del__(self):
        for fd in self.ends:
            os.close(fd)


def test_a_pin_is_in_place_of_its_sessions_last():
    connection, pins = Connection(), iter(range(9))
    engine = Engine(connection, None, print, n_lanes=0)
    for session in ("", "0/a", "", "1/a", "0/a", ""):
        stream = Stream([1, 2], Sampling(), 4)
        stream.seq = Seq()
        stream.seq.pin = lambda seconds: next(pins)
        stream.session, stream.pin_s = session, 5.0
        engine._keep(stream)
    assert connection.unpinned == [1]
    stream.seq.pin = lambda seconds: Seq(pin=error(coppice.Draining))._call("pin")
    stream.pin_s = 5.0
    with pytest.raises(coppice.Draining):
        engine._keep(stream)
    stream.pin_s = 5.0
    stream.seq.close = lambda: None
    engine._close_stream(stream)
    assert connection.unpinned == [1]
    engine.close()


def pinned_at_the_join(engine, ids=(1, 2)):
    """A stream whose tokens were there, and stay for now by pin 7; and by no other."""
    stream = Stream(list(ids), Sampling(), 4)
    stream.seq, stream.session, stream.pin_s = Seq(), "0/a", 5.0
    stream.seq.pin = lambda seconds: 7
    stream.seq.close = lambda: None
    engine._hold(stream, stream.seq)
    stream.seq.pin = lambda seconds: Seq(pin=error(coppice.NoRoom))._call("pin")
    return stream


def test_a_pin_of_the_join_goes_where_that_of_the_end_is_refused():
    connection = Connection()
    engine = Engine(connection, None, print, n_lanes=0)
    stream = pinned_at_the_join(engine)
    with pytest.raises(coppice.NoRoom):
        engine._keep(stream)
    assert connection.unpinned == [7] and stream.pin is None
    engine._close_stream(stream)
    engine._close_stream(pinned_at_the_join(engine))
    assert connection.unpinned == [7, 7]
    engine.close()


def test_a_pin_of_the_join_goes_where_a_stream_cannot_move():
    connection = Connection()
    engine = Engine(connection, None, print, n_lanes=0)
    stream = pinned_at_the_join(engine, range(300))
    here, empty = batch_of(Lane(Seq()), 1)[0], batch_of(Lane(), 0)[0]
    empty.lane.open = lambda model, ids: Seq(open=error(coppice.NoRoom))._call("open")
    engine._batches = [empty]
    stream.open = lambda lane, model, opened=stream.open: lane is empty.lane and opened(lane, model)
    stream.pin_s, stream.pin = 5.0, 7
    stream.seq.pin = lambda seconds: 8
    engine._join(here, stream)
    assert [type(event.error) for event in engine._events] == [coppice.NoRoom]
    assert connection.unpinned == [7, 8] and stream.pin is None
    engine._batches = []
    engine.close()


def test_who_joins_has_a_lane_of_his_own_while_there_are_such():
    """Else the fullest, but where somebody waits for a prompt."""
    engine = Engine(Connection(), None, print, n_lanes=0)
    reading, few, many = (batch_of(Lane(*[Seq()] * n), n)[0] for n in (3, 1, 2))
    for stream in (*few.streams, *many.streams):
        stream.n_done = 1
    empty = batch_of(Lane(), 0)[0]
    engine._batches = [reading, few, many, empty]
    assert engine._choose(1) is empty
    engine._batches.remove(empty)
    assert engine._choose(1) is many
    many.streams *= 8
    assert engine._choose(1) is few
    engine._batches = [reading]
    assert engine._choose(1) is reading
    engine._batches = []
    engine.close()


def test_a_stream_that_moves_asks_anew():
    stream = Stream([1, 2], Sampling(), 4)
    stream.open(Lane(Seq(1)), None)
    assert stream.asked
    stream.open(Lane(Seq()), None)
    assert not stream.asked


class Ids:
    """A row, of which greedy sampling takes the first."""

    ids, logprobs, lse, score, logits, hidden = (7,), (0.0,), 0.0, 0.0, None, None


class Done:
    def done(self):
        return True

    def wait(self, timeout):
        return [Ids()]


def test_a_stream_that_cannot_be_kept_says_so():
    """In place of its end, which is not told."""

    def keep(stream):
        raise error(coppice.LimitReached)

    class Model:
        n_vocab = 10

    lane, events, closed = Lane(Seq()), [], []
    lane.decode = lambda parts, **_: Done()
    batch = Batch(lane, Model, events, closed.append, keep)
    stream = Stream([1, 2], Sampling(temperature=0), 1)
    stream.open(lane, Model)
    batch.streams.append(stream)
    batch.turn()
    batch.turn()
    assert [(event.finish, type(event.error)) for event in events] == [(None, coppice.LimitReached)]
    assert closed == [stream] and batch.streams == []


def test_tokens_are_told_before_anybody_is_closed_or_opened():
    """Each of these waits for an answer of the daemon's."""
    done = []
    engine = Engine(Connection(), None, lambda events: done.append(len(events)), n_lanes=0)
    batch = batch_of(Lane(Seq(), Seq()), 2)[0]
    batch._events, batch._model = engine._events, Model()
    batch._close_stream = lambda stream: done.append("closed")
    batch.streams[0]._most = 3  # its next token is its last
    batch._parts, batch._decode = [(stream, 2) for stream in batch.streams], Both()
    batch.lane.open = lambda model, ids: done.append("opened") or Seq()
    engine._batches = [batch]
    engine.add(Stream([1, 2], Sampling(), 4))
    engine.turn(0)
    assert done == [2, "closed", "opened"]
    assert len(batch.streams) == 2 and batch.in_flight
    engine._batches = []
    engine.close()


class Model:
    n_vocab = 64


class Both(Done):
    """Of two streams."""

    def wait(self, timeout):
        return [Ids(), Ids()]


class Recording(Lane):
    """It knows whose tokens each of its entries has."""

    def __init__(self, answer, n):
        super().__init__(*(Seq() for _ in range(n)))
        self.answer, self.entries = answer, []

    def decode(self, parts, **_):
        self.entries.append([part[0] for part in parts])
        return self.answer


def test_who_is_cancelled_is_in_no_later_entry():
    lane = Recording(Both(), 2)
    batch, events, closed = batch_of(lane, 2)
    batch._model = Model()
    gone, stays = batch.streams
    batch.turn()
    gone.cancelled = True
    batch.turn()
    assert lane.entries == [[gone.seq, stays.seq], [stays.seq]]
    assert closed == [gone] and [e.stream for e in events if e.finish == "cancelled"] == [gone]


def test_who_is_cancelled_alone_ends_before_his_token():
    lane = Recording(Pending(), 1)
    batch, events, closed = batch_of(lane, 1)
    [gone] = batch.streams
    batch.turn()
    gone.cancelled = True
    batch.turn()
    assert closed == [gone] and not batch.in_flight and len(lane.entries) == 1
    assert [(event.token, event.finish) for event in events] == [(None, "cancelled")]


class Bell(Lane):
    """A lane that has rung, and whose entry has been read."""

    def __init__(self):
        super().__init__()
        self.read, self.write = os.pipe()
        os.write(self.write, b"\0")
        self.n_armed = 0

    def fileno(self):
        return self.read

    def arm(self):
        os.read(self.read, 1)
        self.n_armed += 1

    def close(self):
        os.close(self.read)
        os.close(self.write)


def test_a_lane_that_has_nothing_under_way_keeps_nobody_awake():
    connection, bell = Connection(), Bell()
    connection.lane = lambda pollable: bell
    engine = Engine(connection, None, print, n_lanes=1)
    for _ in range(3):
        engine.turn(0.01)
    assert bell.n_armed == 1
    engine.close()
