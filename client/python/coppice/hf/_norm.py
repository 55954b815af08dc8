"""Norms by two of torch's kernels in place of eight: outside graphs, launches are most of a token.

Taken are those whose code is Llama's, which is that of most models. They round where it does, to
the row's type and then times the weight; on a GPU the sum of squares is of another order, so that
last bits may differ.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm


class Light:
    """Stands in for a norm's forward."""

    def __init__(self, norm: Any) -> None:
        self._norm = norm

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        norm = self._norm
        rows = torch.rms_norm(hidden_states, hidden_states.shape[-1:], None, norm.variance_epsilon)
        return norm.weight * rows


class LightNorms:
    """Of a model, until close."""

    def __init__(self, model: Any) -> None:
        self._norms = [module for module in model.modules() if is_llamas(module)]
        for norm in self._norms:
            norm.forward = Light(norm)

    def close(self) -> None:
        for norm in self._norms:
            if is_light(norm):
                del norm.forward
        self._norms = []


def is_light(norm: Any) -> bool:
    return isinstance(vars(norm).get("forward"), Light)


def is_llamas(module: Any) -> bool:
    """Its class has the code of Llama's norm, and nobody has given the module another."""
    code = getattr(type(module).forward, "__code__", None)
    return "forward" not in vars(module) and alike(code, LlamaRMSNorm.forward.__code__)


def alike(code: CodeType | None, other: CodeType) -> bool:
    """The first constant is what the function says of itself."""
    return code is not None and (code.co_code, code.co_names, code.co_consts[1:]) == (
        other.co_code,
        other.co_names,
        other.co_consts[1:],
    )
