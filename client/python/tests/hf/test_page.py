"""The examples of README.md that use transformers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from harness import CHECKPOINT

import coppice

PAGE = Path(__file__).resolve().parents[2] / "README.md"


def run(
    heading: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The first Python of the section; what it prints."""
    found = re.search(rf"## {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    monkeypatch.setattr(sys, "argv", ["example", str(CHECKPOINT)])
    torch.set_num_threads(1)
    exec(found[1], {})
    return capsys.readouterr().out.splitlines()


def test_transformers(
    connection: coppice.Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = run("transformers", monkeypatch, capsys)
    n_document = 5 * len(
        "And it came to pass in those days, that all the men of the city went out. "
    )
    cached = [int(line.split()[0]) for line in lines]
    assert len(lines) == 3 and cached[0] == 0
    assert all(n_document <= n <= n_document + 3 for n in cached[1:])


def test_beam_search(
    connection: coppice.Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    *texts, counted = run("Beam search", monkeypatch, capsys)
    assert len(set(texts)) == 4
    assert int(counted.split()[0]) <= len("In the beginning God created") + 4 * 11
