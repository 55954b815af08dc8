"""Norms while a model is attached: fewer of torch's operations, with the model's own roundings.
test_cuda.py tells of a GPU's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tiny
import torch

import coppice
import coppice.hf
from coppice.hf._norm import LightNorms

SALTS = itertools.count(9000)
LLAMAS = ["llama", "mistral", "qwen3"]


def norms_of(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]


@torch.no_grad()
@pytest.mark.parametrize("name", tiny.MAKERS)
def test_norms_with_llamas_code_are_light(connection: coppice.Connection, name: str) -> None:
    model = tiny.model(name)
    norms = norms_of(model)
    with coppice.hf.attach(model, connection, salt=next(SALTS)):
        lights = [norm for norm in norms if "forward" in vars(norm)]
        assert lights == (norms if name in LLAMAS else [])
    assert not any("forward" in vars(module) for module in model.modules())


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_bits_are_the_models(dtype: torch.dtype) -> None:
    """On a CPU, where the sum has one order."""
    model = tiny.llama().to(dtype)
    norm = model.model.norm
    norm.weight.normal_()
    rows = torch.randn(50, 3, norm.weight.shape[0]).to(dtype)
    want = norm(rows)
    norms = LightNorms(model)
    assert torch.equal(norm(rows), want) and norm(rows).dtype == dtype
    norms.close()
    assert torch.equal(norm(rows), want)


def test_a_forward_of_somebody_elses_stays(connection: coppice.Connection) -> None:
    """Such as accelerate's, which brings a module's weights."""
    model = tiny.llama()
    norm, theirs = model.model.norm, model.model.norm.forward
    norm.forward = theirs
    for _ in range(2):
        with coppice.hf.attach(model, connection, salt=next(SALTS)):
            assert vars(norm)["forward"] is theirs
            assert "forward" in vars(model.model.layers[0].input_layernorm)
    assert vars(norm)["forward"] is theirs
    assert "forward" not in vars(model.model.layers[0].input_layernorm)


def test_attached_twice(connection: coppice.Connection) -> None:
    """What the first one has made light is its own to give back."""
    model = tiny.llama()
    with coppice.hf.attach(model, connection, salt=next(SALTS)):
        with coppice.hf.attach(model, connection, salt=next(SALTS)):
            assert "forward" in vars(model.model.norm)
        assert "forward" in vars(model.model.norm)
    assert "forward" not in vars(model.model.norm)
