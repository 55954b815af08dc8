"""The examples of README.md, each as a program of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import CHECKPOINT, Daemon

PAGE = Path(__file__).resolve().parents[2] / "README.md"
ENGINE = PAGE.with_name("ENGINE.md")


def example(heading: str) -> str:
    """The first Python of the section."""
    section = PAGE.read_text().split(f"## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def run(heading: str, daemon: Daemon) -> str:
    return run_program(example(heading), daemon)


def run_program(text: str, daemon: Daemon) -> str:
    environment = {**os.environ, "COPPICE_SOCKET": daemon.socket}
    command = [sys.executable, "-W", "error", "-c", text, str(CHECKPOINT)]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == 0
    return done.stdout


def test_what_examples_import_is_said_before() -> None:
    """What is not Python's own, or the package, is in a line of pip's in front of it."""
    before, n = "", 0
    for text, code in re.findall(r"(.*?)```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        before += text + code
        for name in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
            if name not in sys.stdlib_module_names and name != "coppice":
                assert re.search(rf"pip install .*\b{name}\b", before), name
                n += 1
    assert n >= 4


def test_agents_on_one_document(daemon: Daemon) -> None:
    lines = run("Agents on one document", daemon).splitlines()
    assert len(lines) == 3 and all(line.count(" ") > 5 for line in lines)
    assert len(example("Agents on one document").splitlines()) <= 20


def test_neither_numpy_nor_torch_is_needed(daemon: Daemon) -> None:
    """To import the package, and for tokens."""
    hide = "import sys; sys.modules.update(dict.fromkeys(('numpy', 'torch', 'tokenizers')))\n"
    lines = run_program(hide + example("Agents on one document"), daemon).splitlines()
    assert len(lines) == 3


def test_asyncio(daemon: Daemon) -> None:
    lines = run("asyncio", daemon).splitlines()
    assert [line[:8] for line in lines] == ["b'In the", "b'Now th", "b'And Go", "b'Thou s"]


def test_an_engines_own_layers(daemon: Daemon) -> None:
    pytest.importorskip("numpy")
    assert run("An engine's own layers", daemon).startswith("0 of 4 tokens")
    assert run("An engine's own layers", daemon).startswith("3 of 4 tokens")


def test_an_engine_of_ones_own(daemon: Daemon) -> None:
    """All blocks of the page are one program."""
    pytest.importorskip("numpy")
    blocks = re.findall(r"```python\n(.*?)```", ENGINE.read_text(), re.DOTALL)
    same, cached, forks, drafts, drafted = run_program("\n".join(blocks), daemon).splitlines()
    assert same == str([True] * 4) and cached == "[150, 150, 150] of 152 tokens were cached"
    assert forks == str([True] * 3) and drafts == "3 1" and drafted == "True"
