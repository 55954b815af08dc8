"""One continuation of a prompt, and what is told of it."""

from __future__ import annotations

from typing import NamedTuple

from .._coppice import Lane, Match, Model, Row, Sequence
from .._errors import LaneFull, TimedOut
from .sampling import Logprob, Sampling, choose, choose_of_all, logprob_of


class Event(NamedTuple):
    """What became of a stream. The last one has `finish`, or an `error`."""

    stream: Stream
    token: int | None = None
    logprob: Logprob | None = None
    finish: str | None = None  # "stop": by a token that ends it; "length"; "cancelled"
    error: Exception | None = None


class Stream:
    """Made by who wants the continuation; from Engine.add on the engine's, but for `cancelled`."""

    def __init__(
        self,
        prompt: list[int],
        sampling: Sampling,
        limit: int,
        eos: frozenset[int] = frozenset(),
        index: int = 0,
    ) -> None:
        """limit: tokens that come at most; index: which of a prompt's n it is."""
        self.ids, self.n_prompt = list(prompt), len(prompt)
        self.sampling = sampling
        self.twins: list[Stream] = []  # forked from this one, once its prompt is computed
        self.session, self.pin_s = "", 0.0  # its tokens are kept so long after its end
        self.pin: int | None = None  # by which what it has is kept so far
        self.cached = 0  # tokens of the prompt that were there
        self.number = 0  # of those that have joined: the newer the higher
        self.cancelled = False
        self.n_done = 0  # tokens that the sequence has
        self.seq: Sequence | None = None
        self._most = len(prompt) + limit
        self._ends = frozenset(sampling.stop_ids) | (frozenset() if sampling.ignore_eos else eos)
        self._random = sampling.random(index)
        self.asked = False  # what others compute of its prompt
        self._draw: float | None = None  # of a token that takes all logits

    def ends(self, why: str | Exception) -> list[Event]:
        """For it, and for those that would have been forked from it."""
        if isinstance(why, str):
            return [Event(one, finish=why) for one in (self, *self.twins)]
        return [Event(one, error=why) for one in (self, *self.twins)]

    # ---- its sequence -----------------------------------------------------------------------

    def open(self, lane: Lane, model: Model) -> None:
        self.asked = False
        self.seq = lane.open(model, self.ids)
        self._start(self.seq.match)
        if self.seq.match.pending:
            self._ask(self.seq)

    def _start(self, match: Match) -> None:
        self.cached = self.n_done = match.cached

    def _ask(self, seq: Sequence) -> None:
        try:
            seq.ask()
        except LaneFull:
            self.asked = False  # then it computes them too
        else:
            self.asked = True

    def hear(self) -> None:
        """Looks whether what was asked has been answered."""
        if self.seq is None or not self.asked:
            return
        try:
            match = self.seq.answer()
        except TimedOut:
            return self._ask(self.seq)
        if match is not None:
            self.asked = False
            self._start(match)

    def fork(self, of: Stream) -> None:
        assert of.seq is not None
        self.seq = of.seq.fork()
        self.n_done, self.cached, self.number = of.n_done, of.n_prompt, of.number

    def part(self, n: int) -> tuple[Sequence, list[int], int]:
        """Its next n tokens, and of how many the row is wanted: of the last one it has."""
        assert self.seq is not None
        end = self.n_done + n
        return self.seq, self.ids[self.n_done : end], int(end == len(self.ids))

    def go_back(self, n_tokens: int) -> None:
        """What is behind n_tokens will be computed once more."""
        assert self.seq is not None
        self.seq.trim(n_tokens)
        self.n_done = n_tokens

    def go_back_to_what_is_there(self) -> None:
        """After a failure; the row of the last token is still to come."""
        assert self.seq is not None
        self.go_back(min(self.seq.state().n_tokens, len(self.ids) - 1))

    @property
    def n_left(self) -> int:
        """Tokens that the sequence does not have yet."""
        return len(self.ids) - self.n_done

    # ---- its tokens -------------------------------------------------------------------------

    @property
    def wants_all(self) -> bool:
        return self._draw is not None or self.sampling.needs_all

    def take(self, row: Row, n_vocab: int) -> Event | None:
        """The next token; None: its row is wanted once more, with all logits."""
        token = self._choose(row, n_vocab)
        if token is None:
            self.go_back(self.n_done - 1)
            return None
        self.ids.append(token)
        return Event(self, token, self._logprob(row, token), self._finish(token))

    def _choose(self, row: Row, n_vocab: int) -> int | None:
        if self.sampling.greedy:
            return row.ids[0]
        u = self._random.random() if self._draw is None else self._draw
        self._draw = None
        if row.logits is not None:
            return choose_of_all(row.logits, self.sampling, u)
        token = choose(row, self.sampling, u, n_vocab)
        if token is None:
            self._draw = u
        return token

    def _logprob(self, row: Row, token: int) -> Logprob | None:
        n = self.sampling.logprobs
        if n is None:
            return None
        logit = None
        if token not in row.ids and row.logits is not None:
            import numpy as np

            logit = float(np.asarray(row.logits)[token])
        return logprob_of(row, token, n, logit)

    def _finish(self, token: int) -> str | None:
        if token in self._ends:
            return "stop"
        return "length" if len(self.ids) >= self._most else None
