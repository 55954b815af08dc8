"""Fewer kernels for a token: norms and rotary embeddings, some ten of torch's, compiled to one.

The model's own functions are compiled, and stand in for themselves while a pass of one token a row
runs or is captured: at modules of the model, and where the model's code looks a function up. So no
other pass of the thread changes. A function of which torch can make nothing runs as it is, and with
it the rest. What is compiled rounds where they do; sums are of another order, and may differ in
their last bits.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._norm import is_light

NORM = "RMSNorm"  # with which the names of their classes end
ROTARY = "apply_rotary_pos_emb"
BACKEND = "inductor"
OPTIONS = {"inductor": {"emulate_precision_casts": True}}

_lock = threading.RLock()  # of what models look up


@functools.cache
def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    options: Any = OPTIONS.get(backend)
    return torch.compile(function, backend=backend, options=options)  # type: ignore[no-any-return]


def norms_of(model: Any) -> list[Any]:
    return [
        module
        for module in model.modules()
        if type(module).__name__.endswith(NORM)
        and ("forward" not in vars(module) or is_light(module))
    ]


def sources_of(model: Any) -> list[Any]:
    """Python's modules with code of the model's that have a function for rotary embeddings."""
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    return [sys.modules[name] for name in names if hasattr(sys.modules[name], ROTARY)]


def put_back(norm: Any, light: Any) -> None:
    del norm.forward
    if light is not None:
        norm.forward = light


class Fused:
    """Of a model."""

    def __init__(self, model: Any) -> None:
        self._backend = BACKEND
        self._norms, self._sources = norms_of(model), sources_of(model)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        with _lock, contextlib.ExitStack() as stack:
            for norm in self._norms:
                light = vars(norm).pop("forward", None)
                stack.callback(put_back, norm, light)
                norm.forward = functools.partial(self._fused(type(norm).forward), norm)
            for source in self._sources:
                own = getattr(source, ROTARY)
                stack.callback(setattr, source, ROTARY, own)
                setattr(source, ROTARY, self._fused(own))
            yield

    def _fused(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Compiled by its first call, which takes a compiler, that need not be there."""
        function = compiled(own, self._backend)

        def run(*given: Any, **named: Any) -> Any:
            if not self._norms and not self._sources:
                return own(*given, **named)
            try:
                return function(*given, **named)
            except Exception as error:
                result = own(*given, **named)  # what is its own fault, it raises
                self._give_up(error)
                return result

        return run

    def _give_up(self, error: Exception) -> None:
        self._norms, self._sources = [], []
        warnings.warn(f"passes are not fused, as torch cannot compile here: {error}")
