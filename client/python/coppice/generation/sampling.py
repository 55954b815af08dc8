"""Which token comes next.

The daemon gives the 64 likeliest tokens of a row, with logits, and the log of the sum of exp(logit)
over the whole vocabulary. That is nearly always enough to draw from the whole distribution, and not
from the 64 alone: what the others weigh together is known at temperature 1, and bounded at any
other. A draw that lands among the 64 whatever the others weigh within their bounds is the draw that
all logits would have given. One that hangs on the others makes `choose` say None; the token is then
computed once more with all its logits, and `choose_of_all` decides with the same draw. Nothing is
cut off, so `temperature`, `top_p` and `top_k` mean what they say:

- temperature 0, and `top_k` of 1 to 64, never need more than the 64
- temperature above 1 makes the others weigh more than the bounds can tell: asked for from the start
- temperature goes first, then `top_k`, then `top_p`, as transformers has it
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

N_TOP = 64
_COLDEST = 1e-5  # below it logits divided by it are too large to be told apart
_LSE_ERROR = 4e-6  # of a sum, whose log is fp32: half a unit in the last place of 32 to 64


_WHOLE = "a whole number"
_KINDS: tuple[tuple[str, type, str], ...] = (
    ("max_tokens", Integral, _WHOLE),
    ("temperature", Real, "a number"),
    ("top_p", Real, "a number"),
    ("top_k", Integral, _WHOLE),
    ("n", Integral, _WHOLE),
    ("seed", Integral, _WHOLE),
    ("stop", tuple, "a tuple of texts"),
    ("stop_ids", tuple, "a tuple of tokens"),
    ("logprobs", Integral, _WHOLE),
    ("skip_special_tokens", bool, "true or false"),
)
_MAY_BE_NONE = ("max_tokens", "seed", "logprobs", "skip_special_tokens")


def _texts(stop: tuple[Any, ...]) -> bool:
    return all(isinstance(text, str) and text for text in stop)


@dataclass(frozen=True)
class Sampling:
    """How the tokens behind a prompt are chosen, and when they end."""

    max_tokens: int | None = 16  # None: as many as the model takes
    temperature: float = 1.0  # below 1e-5: always the likeliest
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    n: int = 1  # continuations of each prompt
    seed: int | None = None  # the same one gives the same tokens, whatever else is going on
    stop: tuple[str, ...] = ()  # texts that end it; not part of what is given
    stop_ids: tuple[int, ...] = ()  # tokens that end it, beside the model's own
    ignore_eos: bool = False
    logprobs: int | None = None  # told with each token: its own, and those of so many likeliest
    skip_special_tokens: bool | None = None  # have no text; None: they have in a chat with tools

    def __post_init__(self) -> None:
        for name, kind, what in _KINDS:
            value = getattr(self, name)
            if not isinstance(value, kind) and not (value is None and name in _MAY_BE_NONE):
                raise ValueError(f"{name} has to be {what}, not {value!r}")
        for holds, name, rule in self._rules():
            if not holds:
                raise ValueError(f"{name} has to be {rule}, not {getattr(self, name)!r}")

    def _rules(self) -> list[tuple[bool, str, str]]:
        return [
            (self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "1 or more"),
            (0 <= self.temperature < 1e3, "temperature", "0 or more, and below 1000"),
            (0 < self.top_p <= 1, "top_p", "above 0 and at most 1"),
            (self.top_k >= 0, "top_k", "0 (no limit) or more"),
            (1 <= self.n <= 256, "n", "1 to 256"),
            (_texts(self.stop), "stop", "texts that are not empty"),
            (self.logprobs is None or 0 <= self.logprobs <= N_TOP, "logprobs", f"0 to {N_TOP}"),
        ]

    @property
    def greedy(self) -> bool:
        return self.temperature < _COLDEST or self.top_k == 1

    @property
    def n_top(self) -> int:
        """Likeliest tokens that a row has to have."""
        return max(1, self.logprobs or 0) if self.greedy else N_TOP

    @property
    def needs_all(self) -> bool:
        """Whether all logits are better asked for at once."""
        return not self.greedy and self.temperature > 1 and not 0 < self.top_k <= N_TOP

    @property
    def skips_special(self) -> bool:
        return self.skip_special_tokens is not False

    def with_tools(self) -> Sampling:
        """Of a chat in which tools may be called: what marks a call is often a special token."""
        none = self.skip_special_tokens is None
        return replace(self, skip_special_tokens=False) if none else self

    def random(self, index: int) -> random.Random:
        """The draws of the index-th of n continuations."""
        return random.Random() if self.seed is None else random.Random(f"{self.seed}/{index}")


class Row(Protocol):
    """What the daemon says of a token: coppice.Row."""

    @property
    def ids(self) -> tuple[int, ...]: ...  # the likeliest first
    @property
    def logprobs(self) -> tuple[float, ...]: ...  # theirs
    @property
    def lse(self) -> float: ...


def _tail(x: list[float], total: float, temperature: float, n_vocab: int) -> tuple[float, float]:
    """What all tokens that are not in the row weigh together, at least and at most, where the
    likeliest weighs 1. x: what those in the row weigh at temperature 1; total: what all weigh."""
    n = n_vocab - len(x)
    if n <= 0:
        return 0.0, 0.0
    rest = total - sum(x)
    low, high = max(0.0, rest - total * _LSE_ERROR), max(0.0, rest + total * _LSE_ERROR)
    power = 1 / temperature
    if power > 1:  # each weighs x^power <= x * last^(power - 1)
        return 0.0, high * x[-1] ** (power - 1)
    if power < 1:  # at most where all weigh the same; x^power >= x, as x <= 1
        return low, n * min(x[-1], high / n) ** power
    return low, high


def _index(sums: list[float], at: float) -> int | None:
    index = bisect_right(sums, at)
    return index if index < len(sums) else None


def _nucleus(sums: list[float], low: float, high: float, top_p: float) -> int | None:
    """How many of the likeliest hold top_p of all."""
    n = bisect_left(sums, top_p * (sums[-1] + high)) + 1
    if n > len(sums) or n != bisect_left(sums, top_p * (sums[-1] + low)) + 1:
        return None
    return n


def _draw(weights: list[float], tail: tuple[float, float], top_p: float, u: float) -> int | None:
    sums = list(accumulate(weights))
    low, high = tail
    if top_p < 1:
        n = _nucleus(sums, low, high, top_p)
        if n is None:
            return None
        del sums[n:]
        low = high = 0.0
    first = _index(sums, u * (sums[-1] + low))
    return first if first == _index(sums, u * (sums[-1] + high)) else None


def choose(row: Row, sampling: Sampling, u: float, n_vocab: int) -> int | None:
    """The token that u, drawn from [0, 1), stands for; None: it takes all logits to know."""
    if sampling.greedy:
        return row.ids[0]
    top_k, most = sampling.top_k, row.logprobs[0]
    weights = x = [math.exp(logprob - most) for logprob in row.logprobs]
    if sampling.temperature != 1:
        power = 1 / sampling.temperature
        weights = [math.exp((logprob - most) * power) for logprob in row.logprobs]
    tail = _tail(x, math.exp(-most), sampling.temperature, n_vocab)
    if 0 < top_k <= len(weights):
        weights, tail = weights[:top_k], (0.0, 0.0)
    elif top_k and tail[1] > 0:
        tail = (0.0, tail[1])
    index = _draw(weights, tail, sampling.top_p, u)
    return None if index is None else row.ids[index]


def _likeliest(logits: Any, n: int) -> Any:
    """Tokens, the likeliest first; alike: the lower id first. n of them, or all."""
    import numpy as np

    if n >= len(logits):
        return np.argsort(-logits, kind="stable")
    some = np.sort(np.argpartition(-logits, n - 1)[:n])
    return some[np.argsort(-logits[some], kind="stable")]


def _candidates(logits: Any, weights: Any, sampling: Sampling) -> Any:
    """Tokens in the order of choose; to sort all of a large vocabulary would take long."""
    import numpy as np

    if sampling.top_k:
        return _likeliest(logits, sampling.top_k)
    if sampling.top_p == 1:  # then it matters only that the likeliest go first
        first = _likeliest(logits, N_TOP)
        return np.concatenate([first, np.delete(np.arange(len(logits)), first)])
    for n in (16 * N_TOP, 256 * N_TOP):
        some = _likeliest(logits, n)
        if weights[some].sum() >= sampling.top_p * weights.sum():
            return some
    return _likeliest(logits, len(logits))


def choose_of_all(logits: Any, sampling: Sampling, u: float) -> int:
    """The same of all logits, an array of fp32; needs numpy."""
    import numpy as np

    all_logits = np.asarray(logits)
    scaled = all_logits.astype(np.float64) / (sampling.temperature or 1e-6)
    weights = np.exp(scaled - scaled.max())
    order = _candidates(all_logits, weights, sampling)
    sums = np.cumsum(weights[order])
    if sampling.top_p < 1:
        total = sums[-1] if sampling.top_k else weights.sum()
        sums = sums[: int(np.searchsorted(sums, sampling.top_p * total)) + 1]
    index = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return int(order[min(index, len(sums) - 1)])


class Logprob(NamedTuple):
    """How likely a token was by the model, before temperature, top_k and top_p."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the likeliest, first the likeliest


def logprob_of(row: Row, token: int, n: int, logit: float | None = None) -> Logprob:
    """logit: of a token that is not in the row."""
    own = row.logprobs[row.ids.index(token)] if logit is None else logit - row.lse
    return Logprob(token, own, tuple(zip(row.ids[:n], row.logprobs[:n])))
