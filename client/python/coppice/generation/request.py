"""From a prompt to the streams that continue it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Mapping

from .._coppice import Model, extremes
from .batch import LANE_STREAMS
from .sampling import Sampling
from .stream import Stream


class TooLong(ValueError):
    """The prompt, and what may come behind it, are more than the model takes."""


class Limits:
    """What a model takes, and the daemon's pool."""

    def __init__(self, model: Model, eos: frozenset[int]) -> None:
        self.n_vocab, self.max_positions, self.eos = model.n_vocab, model.max_positions, eos
        pages = model.connection.stats().pool_bytes // model.page_bytes
        self.pool_tokens = pages * model.page_tokens

    def room(self, prompt: list[int], sampling: Sampling) -> int:
        """Tokens that may come behind a prompt."""
        if not prompt:
            raise ValueError("the prompt is empty: give it one token at least")
        least, most = extremes(prompt) or (min(prompt), max(prompt))
        if least < 0 or most >= self.n_vocab:
            bad = least if least < 0 else most
            raise ValueError(f"token {bad} is not of the model's {self.n_vocab}")
        if len(prompt) > self.pool_tokens:
            raise TooLong(
                f"the prompt has {len(prompt)} tokens, and the daemon's pool has room for "
                f"{self.pool_tokens}: shorten the prompt, or give the daemon a larger pool"
            )
        room = self.max_positions - len(prompt)
        wanted = sampling.max_tokens if sampling.max_tokens is not None else max(room, 1)
        if wanted > room:
            raise TooLong(
                f"the model takes {self.max_positions} tokens; the prompt has {len(prompt)}, and "
                f"{wanted} are to come: shorten the prompt, or lower max_tokens"
            )
        return wanted

    def streams(self, prompt: list[int], sampling: Sampling) -> list[Stream]:
        """The n continuations of a prompt, in order."""
        room = self.room(prompt, sampling)
        return [Stream(prompt, sampling, room, self.eos, index) for index in range(sampling.n)]


def leaders(streams: list[Stream]) -> list[Stream]:
    """Streams of one prompt: of each 16 one is opened, and the others are forked from it."""
    groups = [streams[i : i + LANE_STREAMS] for i in range(0, len(streams), LANE_STREAMS)]
    for first, *others in groups:
        first.twins = others
    return [group[0] for group in groups]


def sampling_of(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Sampling:
    """options go before defaults; None stands for what is default, but of max_tokens."""
    known = [field.name for field in fields(Sampling)]
    for key in options:
        if key not in known:
            raise ValueError(f"there is no option {key}; there are {', '.join(known)}")
    given = {key: value for key, value in options.items() if value is not None}
    if "max_tokens" in options:
        given["max_tokens"] = options["max_tokens"]
    for key in ("stop", "stop_ids"):
        if key in given:
            value = given[key]
            given[key] = (value,) if isinstance(value, (str, int)) else tuple(value)
    return Sampling(**{**defaults, **given})
