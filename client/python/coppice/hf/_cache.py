"""The Cache that transformers is given: no keys and values, but sequences of the daemon's."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import cache_utils

from ._batch import Batch
from ._errors import invalid
from ._mask import Columns
from ._shape import Shape

if TYPE_CHECKING:
    from typing_extensions import Self


class Owner(Protocol):
    """What a cache, and a captured pass with it, asks of the SharedKV that has made it."""

    shape: Shape

    def take_back(self, batch: Batch) -> None:
        """The batch's end."""

    def is_of(self, model: Any) -> bool:
        """Is it attached to this model?"""

    def begun(self) -> AbstractContextManager[None]:
        """For a pass of this thread's that has begun already."""


class Layer(cache_utils.CacheLayerMixin):
    is_compileable = False
    is_croppable = True
    is_sliding = False

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self._batch = batch
        self.is_initialized = True

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """There is nothing to make."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        """The new rows alone. The attention function is given K, and finds the pass by it."""
        self._batch.opened()
        key_states.coppice_forward = self._batch.forward
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        columns = Columns(self._batch.length + query_length)
        columns.coppice_forward = self._batch.forward
        return columns, 0

    def get_seq_length(self) -> int:
        return self._batch.length

    def get_max_length(self) -> int:
        return -1

    @property
    def batch_size(self) -> int:
        return len(self._batch.rows)


class Cache(cache_utils.Cache):
    """Made by SharedKV.cache. Its end closes its sequences; what they computed stays shared."""

    def __init__(self, shared: Owner, batch: Batch) -> None:
        self.shared = shared
        self._batch = batch
        super().__init__(layers=[Layer(batch) for _ in range(shared.shape.n_layers)])
        self._end = weakref.finalize(self, shared.take_back, batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Raises how the last pass failed, where nobody has asked yet."""
        try:
            if not self.closed and (not self._batch.forward or self._batch.forward.done):
                self.check()
        finally:
            self._end()

    @property
    def closed(self) -> bool:
        return self._batch.workspace is None

    def check(self) -> None:
        """Waits for the daemon; raises how a step failed. On a CPU the pass itself has done so."""
        self._batch.opened().check()

    @property
    def n_cached(self) -> list[int]:
        """Of each row: how many tokens have KV."""
        return [row.n_tokens for row in self._batch.rows]

    def begin(self, kwargs: dict[str, Any]) -> Batch:
        """Called in front of a pass of the model, with what that is given."""
        self._batch.begin(kwargs)
        return self._batch

    def crop(self, tokens_to_remove: int) -> None:
        """Drops the last -tokens_to_remove tokens of each row. May be a tensor of one number."""
        n_columns = -int(tokens_to_remove)
        if n_columns < 0 or n_columns > self._batch.length:
            raise invalid(f"crop({-n_columns}): give the number of tokens to drop, negative")
        if n_columns:
            self._batch.crop(n_columns)

    def reset(self) -> None:
        self._batch.crop(self._batch.length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self._batch.select(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._batch.select(torch.arange(len(self._batch.rows))[indices.cpu()].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._batch.select([i for i in range(len(self._batch.rows)) for _ in range(repeats)])
