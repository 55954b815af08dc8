"""Tokens by a program: what the daemon computes of tests/model, as its fixtures have it."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from harness import CHECKPOINT, GREEDY, await_seqs

import coppice

PROMPT = list((GREEDY / "prompt.bin").read_bytes())
ANSWER = (GREEDY / "greedy.bin").read_bytes()


def decode_greedy(seq: coppice.Sequence, todo: list[int], n: int) -> bytes:
    out = bytearray()
    for _ in range(n):
        [row] = seq.decode(todo).wait()
        out.append(row.ids[0])
        todo = [row.ids[0]]
    return bytes(out)


def test_greedy_text_is_that_of_the_fixture(lane: coppice.Lane, model: coppice.Model) -> None:
    with lane.open(model, PROMPT) as seq:
        match = seq.wait()
        assert decode_greedy(seq, PROMPT[match.cached :], 24) == ANSWER[:24]
        assert seq.state() == (len(PROMPT) + 23, 0)


def test_logits_are_those_of_the_fixture(lane: coppice.Lane, model: coppice.Model) -> None:
    wanted = struct.unpack("<256f", (GREEDY / "logits.f32").read_bytes()[-1024:])
    with lane.open(model, PROMPT) as seq:
        [row] = seq.decode(PROMPT[seq.cached :], top=3, logits=True, hidden=True).wait()
    assert row.logits is not None and row.hidden is not None
    got = row.logits.tolist()
    assert max(abs(a - b) for a, b in zip(got, wanted)) < 0.1  # products are of bfloat16
    assert row.hidden.shape == (256,) and row.logits.shape == (256,)
    assert row.lse == pytest.approx(math.log(sum(map(math.exp, got))), abs=1e-3)
    assert row.logprobs[0] == pytest.approx(max(got) - row.lse, abs=1e-4)
    assert row.ids[0] == got.index(max(got)) and len(row.ids) == 3


def test_scores_are_log_probabilities_of_the_tokens(
    lane: coppice.Lane, model: coppice.Model
) -> None:
    text = list(b"And God said")
    with lane.open(model, text, salt=7) as seq:
        rows = seq.decode(text, len(text), top=64, score=True).wait()
    for row, after in zip(rows, text[1:]):
        if after in row.ids:
            assert row.score == pytest.approx(row.logprobs[row.ids.index(after)], abs=1e-4)
    assert math.isnan(rows[-1].score) and len(rows) == len(text)


def test_what_one_has_computed_another_finds(lane: coppice.Lane, model: coppice.Model) -> None:
    text = list(b"The same words for both of them, " * 4)
    with lane.open(model, text) as first:
        one = decode_greedy(first, text[first.cached :], 4)
        with lane.open(model, text) as second:
            assert second.cached == len(text) - 1
            assert decode_greedy(second, text[second.cached :], 4) == one
    with lane.open(model, text, salt=1) as apart:
        assert apart.cached == 0


def test_many_are_opened_and_decoded_together(lane: coppice.Lane, model: coppice.Model) -> None:
    prompts = [list(b"He went up"), list(b"He went down, and"), list(b"And so")]
    seqs = lane.open_many([(model, p) for p in prompts])
    rows = lane.decode([(s, p[s.cached :]) for s, p in zip(seqs, prompts)]).wait()
    alone = [decode_greedy(s.fork(), [row.ids[0]], 1) for s, row in zip(seqs, rows)]
    again = lane.decode([(s, [row.ids[0]]) for s, row in zip(seqs, rows)]).wait()
    assert [bytes([row.ids[0]]) for row in again] == alone


def test_rows_of_some_tokens_alone_are_wanted(lane: coppice.Lane, model: coppice.Model) -> None:
    a, b = lane.open_many([(model, [65, 66, 67, 68]), (model, [70, 71])])
    rows = lane.decode([(a, [65, 66, 67, 68], 3), (b, [70, 71], 0)]).wait()
    assert len(rows) == 3
    assert a.decode([1], 0).wait() == []


def test_a_decode_that_is_cancelled_keeps_what_was_published(
    lane: coppice.Lane, model: coppice.Model
) -> None:
    text = [i * 7 % 256 for i in range(8000)]
    with lane.open(model, text, salt=11) as seq:
        rest = seq.decode(text)
        rest.cancel()
        with pytest.raises(coppice.Canceled, match="coppice_decode_cancel"):
            rest.wait()
        rest.cancel()
        had = seq.state().n_tokens
        assert had < len(text)
        assert len(seq.decode(text[had : had + 3]).wait()) == 1


def test_forks_and_trims_go_their_own_ways(lane: coppice.Lane, model: coppice.Model) -> None:
    text = list(b"In the beginning")
    with lane.open(model, text, salt=3) as seq:
        seq.decode(text).wait()
        with seq.fork() as twin:
            assert twin.decode([32]).wait()[0].ids == seq.decode([32]).wait()[0].ids
            lane.wait(seq.trim(5))
            assert seq.state().n_tokens == 5 and twin.state().n_tokens == len(text) + 1


def test_a_pin_is_made_and_ended(connection: coppice.Connection, model: coppice.Model) -> None:
    text = list(b"Keep this for a while")
    with connection.lane().open(model, text) as seq:
        seq.decode(text[seq.cached :]).wait()
        pin = seq.pin(5.0)
    connection.unpin(pin)
    with pytest.raises(coppice.NotFound):
        connection.unpin(pin)


def test_weights_tell_their_tensors(connection: coppice.Connection) -> None:
    with coppice.open_weights(connection, CHECKPOINT) as weights:
        progress = weights.wait(30.0)
        assert weights.ready and progress.n_done == progress.n_bytes > 0
        info = weights.tensor(weights.find("model.embed_tokens.weight"))
        assert (info.dtype, info.shape) == ("bfloat16", (256, 256))
        assert len({weights.tensor(i).name for i in range(len(weights))}) == len(weights)


def test_loading_tells_its_progress(connection: coppice.Connection) -> None:
    told: list[coppice.Progress] = []
    model = coppice.load_model(connection, CHECKPOINT, progress=told.append)
    assert told[-1].n_done == told[-1].n_bytes > 0
    assert model.is_program and (model.n_vocab, model.hidden, model.n_layers) == (256, 256, 5)


def test_a_config_may_be_bytes(connection: coppice.Connection) -> None:
    with coppice.open_weights(connection, CHECKPOINT) as weights:
        weights.wait()
        config = (CHECKPOINT / "config.json").read_bytes()
        model = connection.program(weights, config, max_positions=100)
    assert model.max_positions == 100 and model.connection is connection


def test_a_dropped_sequence_is_closed(connection: coppice.Connection, model: coppice.Model) -> None:
    lane = connection.lane()
    seqs = [lane.open(model, [i + 1, 2, 3]) for i in range(20)]
    await_seqs(connection, 20)
    del seqs
    await_seqs(connection, 0)


def test_a_dropped_decode_spoils_nobodys_rows(lane: coppice.Lane, model: coppice.Model) -> None:
    text = list(b"A longer text that is on its way when nobody wants it any more. " * 8)
    with lane.open(model, text, salt=9) as seq:
        wanted = seq.decode(text, logits=True).wait()[0].logits
        assert wanted is not None
        before = wanted.tolist()
        for i in range(20):
            seq.decode([65 + i], logits=True)
        seq.decode([65]).wait()
        assert wanted.tolist() == before


def test_nothing_is_cut_from_weights(connection: coppice.Connection) -> None:
    with coppice.open_weights(connection, CHECKPOINT) as weights:
        weights.wait()
        with pytest.raises(coppice.Invalid, match="there are weights in it"):
            weights.map().tensor((2,))


def test_a_folder_without_weights_is_named(connection: coppice.Connection, tmp_path: Path) -> None:
    with pytest.raises(coppice.NotFound, match=str(tmp_path)):
        coppice.load_model(connection, tmp_path)


def test_a_draft_is_judged_in_one_pass(lane: coppice.Lane, model: coppice.Model) -> None:
    guess = list(ANSWER[:4])
    guess[2] = (guess[2] + 1) % 256
    with lane.open(model, PROMPT) as seq:
        [row] = seq.decode(PROMPT[seq.wait().cached :]).wait()
        assert row.ids[0] == guess[0]
        rows = seq.decode(guess, 4, parents=[-1, 0, 1, 2]).wait()
        assert [row.ids[0] for row in rows[:2]] == list(ANSWER[1:3])
        lane.wait(seq.accept([0, 1]))
        assert seq.state() == (len(PROMPT) + 2, 0)
        [row] = seq.decode([ANSWER[2]]).wait()
        assert row.ids[0] == ANSWER[3]
        with pytest.raises(coppice.Invalid, match="1 parents are given for 2 tokens"):
            seq.decode([1, 2], parents=[-1])
