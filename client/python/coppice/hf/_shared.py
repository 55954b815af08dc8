"""A model of transformers whose KV is at the daemon."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .._coppice import Connection
from ._batch import Batch
from ._cache import Cache
from ._errors import closed, invalid
from ._fingerprint import fingerprint
from ._norm import LightNorms
from ._shape import DTYPES, shape_of
from ._workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import Self

NAME = "coppice"  # of the attention function


class SharedKV:
    """Made by attach. Several threads may have a cache each."""

    def __init__(self, model: Any, connection: Connection, salt: int, weights_hash: int) -> None:
        self.shape = shape_of(model)
        self.connection, self.salt = connection, salt
        self.device = torch.device(model.device)
        self.model = connection.model(
            f"transformers {type(model.base_model).__name__}",
            n_layers=self.shape.n_layers,
            n_q_heads=self.shape.n_q_heads,
            n_kv_heads=self.shape.n_kv_heads,
            head_dim=self.shape.head_dim,
            dtype=DTYPES[self.shape.dtype],
            scale=self.shape.scale,
            weights_hash=weights_hash,
        )
        self._idle: list[Workspace] = []
        self._caches: weakref.WeakSet[Cache] = weakref.WeakSet()
        self._former = model.config._attn_implementation
        self._attached: Any = model
        self._has_begun = threading.local()
        model.set_attn_implementation(NAME)
        self._norms = LightNorms(model)
        self._hook = model.base_model.register_forward_pre_hook(self._begin, with_kwargs=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._attached is None

    def close(self) -> None:
        """Closes its caches; the model has the attention and the norms again that it had before."""
        model, self._attached = self._attached, None
        if model is None:
            return
        for cache in list(self._caches):
            cache.close()
        self._hook.remove()
        self._norms.close()
        model.set_attn_implementation(self._former)
        while self._idle:
            self._idle.pop().close()

    def cache(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        salt: int | None = None,
    ) -> Cache:
        """For generate(input_ids, past_key_values=...): what is cached of them is not fed again.

        attention_mask: of padding, on the left. salt None: that of attach. Blocks, also for what
        other processes are computing of these tokens.
        """
        if self.closed:
            raise closed("SharedKV")
        batch = Batch(self._workspace())
        try:
            batch.open(self.model, input_ids, attention_mask, self.salt if salt is None else salt)
        except BaseException:
            self.take_back(batch)
            raise
        cache = Cache(self, batch)
        self._caches.add(cache)
        return cache

    def _workspace(self) -> Workspace:
        try:
            return self._idle.pop()
        except IndexError:
            return Workspace(self.connection, self.shape, self.device)

    def take_back(self, batch: Batch) -> None:
        former = batch.workspace
        workspace = batch.close()
        if workspace and not self.closed:
            self._idle.append(workspace)
        elif former:
            former.close()

    def is_of(self, model: Any) -> bool:
        return self._attached is model

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        self._has_begun.value = True
        try:
            yield
        finally:
            self._has_begun.value = False

    def _begin(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        if not isinstance(cache, Cache) or getattr(self._has_begun, "value", False):
            return
        if cache.shared is not self:
            raise invalid("past_key_values is a cache of another model")
        cache.begin({"input_ids": args[0], **kwargs} if args else kwargs)


def attach(
    model: Any, connection: Connection, *, salt: int = 0, weights_hash: int | None = None
) -> SharedKV:
    """Gives a causal model of transformers the daemon's attention, until SharedKV.close.

    Processes share KV where their models are the same: weights_hash None reads all weights once, to
    tell; else it is for the caller to give models that differ different numbers. Attach again
    after the weights, an adapter or the type have changed. Raises Unsupported: the sentence names
    the key of the config.
    """
    number = fingerprint(model) if weights_hash is None else weights_hash
    return SharedKV(model, connection, salt, number)
