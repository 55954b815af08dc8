"""A daemon, a small model, and processes of vLLM's own build for CPUs. See README.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python/tests/core"))

from harness import running  # noqa: E402

SIZES: dict[str, Any] = dict(
    vocab_size=96,
    hidden_size=128,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=512,
    bos_token_id=1,
    eos_token_id=None,
)


@pytest.fixture(scope="session")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon.socket


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose random weights are large enough that tokens depend on context."""
    import torch
    import transformers as hf

    torch.manual_seed(1)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES))
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(6)
    to = tmp_path_factory.mktemp("model")
    model.save_pretrained(to)
    return to


class Process:
    def __init__(self, folder: Path, settings: dict[str, Any], socket: str) -> None:
        script = Path(__file__).with_name("vllm_process.py")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "COPPICE_SOCKET": socket},
        )

    def ready(self) -> Process:
        self._hear()
        return self

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise EOFError(self.errors.read())
        return json.loads(line)

    def ask(self, *requests: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(requests), file=self.process.stdin, flush=True)

    def told(self) -> Any:
        return self._hear()

    def serve(self, *requests: dict[str, Any]) -> Any:
        self.ask(*requests)
        return self.told()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture(scope="session")
def start(folder: Path, socket: str) -> Iterator[Callable[..., Process]]:
    """Begins a process of vLLM's, with the daemon or its own attention."""
    made: list[Process] = []

    def begin(**settings: Any) -> Process:
        made.append(Process(folder, settings, socket))
        return made[-1]

    yield begin
    for process in made:
        process.end()


@pytest.fixture(scope="session")
def pair(start: Callable[..., Process]) -> tuple[Process, Process, Process]:
    """Two with the daemon, and one with vLLM's own attention."""
    processes = [start(coppice=is_ours) for is_ours in (True, True, False)]
    one, other, own = (process.ready() for process in processes)
    return one, other, own
