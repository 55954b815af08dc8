"""Parameters that are the daemon's: the same tokens, by one copy of the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

import coppice
import coppice.hf

IDS = tiny.draw(2, 12, seed=60)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny.llama(seed=21), tmp_path_factory.mktemp("llama"))


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(IDS, use_cache=False).logits
    return result


def on_meta(model: Any) -> Any:
    """Its parameters alone."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.to("meta"), requires_grad=False))
    return model


def inodes() -> set[str]:
    """Of the weights that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "coppice-weights" in line}


def test_a_model_becomes_that_of_the_files(
    connection: coppice.Connection, checkpoint: Path
) -> None:
    want, model = logits(tiny.llama(seed=21)), tiny.llama(seed=22)
    with coppice.open_weights(connection, checkpoint) as weights:
        coppice.hf.share_weights(model, weights)
    assert torch.equal(logits(model), want)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with coppice.hf.attach(model, connection) as shared, shared.cache(IDS) as cache:
        with torch.no_grad():
            got = model(IDS, past_key_values=cache).logits
    assert torch.allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_model_that_was_read_from_a_folder(
    connection: coppice.Connection, checkpoint: Path
) -> None:
    model = type(tiny.llama()).from_pretrained(checkpoint)
    want, before = logits(model), inodes()
    coppice.hf.share_weights(model)
    assert torch.equal(logits(model), want)
    assert inodes() - before
    with pytest.raises(coppice.Invalid, match="read from no folder.*coppice.open_weights"):
        coppice.hf.share_weights(tiny.llama(seed=22))
    model.config._name_or_path = str(checkpoint.parent)
    with pytest.raises(coppice.NotFound, match="no file .*safetensors"):
        coppice.hf.share_weights(model)


def test_parameters_on_meta_never_have_memory(
    connection: coppice.Connection, checkpoint: Path
) -> None:
    want, model = logits(tiny.llama(seed=21)), on_meta(tiny.llama(seed=22))
    with coppice.open_weights(connection, checkpoint) as weights:
        coppice.hf.share_weights(model, weights)
    assert torch.equal(logits(model), want)


CHILD = """
import gc, sys, torch, coppice, coppice.hf, tiny, test_share
for line in sys.stdin:
    model = tiny.llama(seed=23)
    with coppice.connect() as connection, coppice.open_weights(connection, sys.argv[1]) as weights:
        coppice.hf.share_weights(model, weights)
    print(test_share.told(model), flush=True)
    del model, weights, connection
    gc.collect()
    print(len(test_share.inodes()), flush=True)
"""


def told(model: Any) -> str:
    """Whose weights they are, and what they are."""
    return f"{' '.join(inodes())} {logits(model).double().sum().item()}"


def test_buffers_on_another_device(
    connection: coppice.Connection, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where parameters are on meta they say nothing."""
    model, of = on_meta(tiny.llama(seed=22)), torch.from_dlpack
    before = list(model.parameters())
    monkeypatch.setattr(torch, "from_dlpack", lambda array: of(array).to("meta"))
    with coppice.open_weights(connection, checkpoint) as weights:
        with pytest.raises(coppice.Invalid, match="inv_freq is on cpu, .* weights on meta"):
            coppice.hf.share_weights(model, weights)
    assert all(a is b for a, b in zip(before, model.parameters()))


def test_processes_have_one_copy(connection: coppice.Connection, checkpoint: Path) -> None:
    model = tiny.llama(seed=22)
    with coppice.open_weights(connection, checkpoint) as weights:
        coppice.hf.share_weights(model, weights)
    want = told(model)
    command = [sys.executable, "-c", CHILD, str(checkpoint)]
    pipe, folder = subprocess.PIPE, Path(__file__).parent
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin and child.stdout
        for _ in range(2):
            print("tell", file=child.stdin, flush=True)
            assert child.stdout.readline().strip() == want
            assert child.stdout.readline().strip() == "0"  # it takes them anew each time
            model.lm_head.weight.zero_()  # this process's own from here on
        child.stdin.close()
    assert child.returncode == 0


def test_tied_embeddings(connection: coppice.Connection, tmp_path: Path) -> None:
    folder = saved(tiny.llama(seed=24, tie_word_embeddings=True), tmp_path)
    model = tiny.llama(seed=25, tie_word_embeddings=True)
    with coppice.open_weights(connection, folder) as weights:
        coppice.hf.share_weights(model, weights)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(logits(model), logits(tiny.llama(seed=24, tie_word_embeddings=True)))


def test_a_base_model_alone(connection: coppice.Connection, checkpoint: Path) -> None:
    model = tiny.llama(seed=22).model
    with coppice.open_weights(connection, checkpoint) as weights:
        coppice.hf.share_weights(model, weights)
    want = tiny.llama(seed=21).model
    with torch.no_grad():
        assert torch.equal(model(IDS).last_hidden_state, want(IDS).last_hidden_state)


def meta() -> Any:
    with torch.device("meta"):
        return tiny.hf.LlamaForCausalLM(tiny.hf.LlamaConfig(**tiny.SIZES))


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: tiny.llama(num_hidden_layers=4), coppice.NotFound, r"no tensor .*layers\.3\."),
        (tiny.gpt_oss, coppice.NotFound, "no tensor"),
        (lambda: tiny.llama(intermediate_size=32), coppice.Invalid, r"is \[32, 64\]"),
        (lambda: tiny.llama().half(), coppice.Invalid, "is of torch.float16, .* float32"),
        (meta, coppice.Invalid, "is on meta, and no weight"),
    ],
)
def test_weights_of_another_model(
    connection: coppice.Connection, checkpoint: Path, make: Any, error: Any, sentence: str
) -> None:
    model = make()
    before = list(model.parameters())
    with coppice.open_weights(connection, checkpoint) as weights:
        with pytest.raises(error, match=sentence):
            coppice.hf.share_weights(model, weights)
    assert all(a is b for a, b in zip(before, model.parameters())) and not inodes()


def test_weights_that_are_closed(connection: coppice.Connection, checkpoint: Path) -> None:
    weights = coppice.open_weights(connection, checkpoint)
    weights.close()
    with pytest.raises(coppice.Closed):
        coppice.hf.share_weights(tiny.llama(), weights)


def test_weights_that_are_no_safetensors(connection: coppice.Connection, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    with coppice.open_weights(connection, tmp_path) as weights:
        with pytest.raises(coppice.Invalid, match="safetensors"):
            coppice.hf.share_weights(tiny.llama(), weights)
