"""Fewer kernels for a token: norms and rotary embeddings, some ten of torch's, compiled to one.

The model's own functions are compiled, and stand in for themselves while a pass of one token a row
runs or is captured: at modules of the model, and where the model's code looks a function up. So no
other pass changes, and where nothing can be compiled, none does. What is compiled rounds where they
do.
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

NORM = "RMSNorm"  # with which the names of their classes end
ROTARY = "apply_rotary_pos_emb"
BACKEND = "inductor"
OPTIONS = {"inductor": {"emulate_precision_casts": True}}

_lock = threading.RLock()  # of what models look up


@functools.cache
def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    options: Any = OPTIONS.get(backend)
    return torch.compile(function, backend=backend, options=options)  # type: ignore[no-any-return]


def one_more(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def norms_of(model: Any) -> list[Any]:
    return [
        module
        for module in model.modules()
        if type(module).__name__.endswith(NORM) and "forward" not in vars(module)
    ]


def sources_of(model: Any) -> list[Any]:
    """Python's modules with code of the model's that have a function for rotary embeddings."""
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    return [sys.modules[name] for name in names if hasattr(sys.modules[name], ROTARY)]


class Fused:
    """Of a model."""

    def __init__(self, model: Any) -> None:
        self._backend = BACKEND
        self._norms, self._sources = norms_of(model), sources_of(model)
        self._is_tried = False

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        with _lock, contextlib.ExitStack() as stack:
            self._try()
            for norm in self._norms:
                stack.callback(delattr, norm, "forward")
                norm.forward = functools.partial(compiled(type(norm).forward, self._backend), norm)
            for source in self._sources:
                own = getattr(source, ROTARY)
                stack.callback(setattr, source, ROTARY, own)
                setattr(source, ROTARY, compiled(own, self._backend))
            yield

    def _try(self) -> None:
        """Once, as compiling takes a compiler, which need not be there."""
        if self._is_tried or not self._norms:
            return
        self._is_tried = True
        try:
            compiled(one_more, self._backend)(torch.zeros(2, device=self._norms[0].weight.device))
        except Exception as error:
            self._norms, self._sources = [], []
            warnings.warn(f"passes are not fused, as torch cannot compile here: {error}")
