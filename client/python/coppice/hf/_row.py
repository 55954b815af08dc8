"""Rows of a batch, each a sequence of the daemon's. Rows that have the same tokens are one Row."""

from __future__ import annotations

from collections.abc import Sequence as Items

from .._coppice import Lane, Model, Sequence
from ._errors import invalid


class Row:
    """ids: all that are known, the prompt to begin with; the first n_tokens of them have KV."""

    def __init__(self, seq: Sequence, ids: list[int], n_pads: int, n_tokens: int) -> None:
        self.seq, self.ids = seq, ids
        self.n_pads, self.n_tokens = n_pads, n_tokens

    def fork(self) -> Row:
        return Row(self.seq.fork(), list(self.ids), self.n_pads, self.n_tokens)

    def unseen(self, place: int, tokens: list[int]) -> tuple[int, ...]:
        """Which of the tokens from a place on have no KV yet. Raises Invalid."""
        if place > self.n_tokens:
            raise invalid(f"tokens {self.n_tokens} to {place} of a row are missing")
        known = self.ids[place : place + len(tokens)]
        if tokens[: len(known)] != known:
            raise invalid(
                "these are other tokens than the cache was made for, or not those that follow "
                f"the {self.n_tokens} that it has"
            )
        return tuple(tokens[self.n_tokens - place :])

    def grow(self, tokens: Items[int]) -> None:
        self.ids[self.n_tokens : self.n_tokens + len(tokens)] = tokens
        self.n_tokens += len(tokens)

    def forget(self, n_kept: int) -> None:
        """Its ids from there on. Its sequence is for the caller to trim."""
        del self.ids[n_kept:]
        self.n_tokens = n_kept


def unique(rows: list[Row]) -> list[Row]:
    """In order. A Row is equal to itself alone."""
    return list(dict.fromkeys(rows))


def open_rows(
    lane: Lane, model: Model, prompts: list[list[int]], pads: list[int], salt: int
) -> list[Row]:
    """Waits for what others compute of them, but where some of it is this batch's own to do."""
    keys = [(n_pads, tuple(ids)) for n_pads, ids in zip(pads, prompts)]
    unlike = list(dict.fromkeys(keys))
    seqs = lane.open_many([(model, ids, salt) for _, ids in unlike])
    if not any(seq.match.claimed for seq in seqs):
        for seq in seqs:
            seq.wait()
    made = {
        (n_pads, ids): Row(seq, list(ids), n_pads, seq.cached)
        for (n_pads, ids), seq in zip(unlike, seqs)
    }
    return [made[key] for key in keys]


def split_rows(rows: list[Row], news: list[tuple[int, ...]]) -> list[Row]:
    """Rows that go on with other tokens than their twins become sequences of their own."""
    made: dict[tuple[Row, tuple[int, ...]], Row] = {}
    taken: set[Row] = set()
    for row, new in zip(rows, news):
        if (row, new) not in made:
            made[row, new] = row.fork() if row in taken else row
            taken.add(row)
    return [made[row, new] for row, new in zip(rows, news)]
