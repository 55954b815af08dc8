"""What may be given to `coppice generate` by mistake, and what it shows of a long prompt."""

import os
import subprocess
import sys

import pytest

import checkpoint
from serving import Daemon
from coppice.generation import progress
from coppice.llm import LLM

LONG = "In the beginning " * 480


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """Its own: what a long prompt takes of a pool is counted in another test."""
    one = Daemon(tmp_path_factory.mktemp("daemon"))
    yield one
    one.end()


def command(daemon, *words, **more):
    line = [sys.executable, "-m", "coppice", "generate", "--socket", daemon.socket, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **more)


@pytest.mark.parametrize("behind", [["--max-tokens", "2", "--", "-foo"], ["--", "-foo", "--bar"]])
def test_a_prompt_that_begins_as_an_option(daemon, folder, behind):
    found = command(daemon, str(folder), *behind)
    assert (found.returncode, found.stderr) == (0, "")


def said(found):
    """One sentence."""
    assert found.returncode == 1 and found.stderr.startswith("coppice: ")
    assert found.stderr.count("\n") == 1
    return found.stderr


def test_a_prompt_that_is_no_text(daemon, folder):
    word = os.fsdecode(b"\xff\xfe")
    utf8 = {**os.environ, "LC_ALL": "C.UTF-8"}
    assert "the text is no Unicode" in said(command(daemon, str(folder), word, env=utf8))
    found = command(daemon, str(folder), env=utf8, input=word, errors="surrogateescape")
    assert "the text is no Unicode" in said(found)


def test_no_prompt_and_no_stdin(daemon, folder):
    line = f'exec "{sys.executable}" -m coppice generate "{folder}" --socket "{daemon.socket}" <&-'
    found = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert "there is no prompt" in said(found)


def test_a_folder_of_nobody(daemon):
    assert "~nobody-here/x: " in said(command(daemon, "~nobody-here/x", "a"))


def test_weights_that_are_a_pipe(daemon, tmp_path):
    folder = checkpoint.link(tmp_path / "piped", ["config.json", "tokenizer.json"])
    os.mkfifo(folder / "model.safetensors")
    assert "regular file" in said(command(daemon, str(folder), "a"))


def test_a_bar_of_a_long_prompt(daemon, folder, monkeypatch, capsys):
    """It is gone before the first piece."""
    monkeypatch.setattr(progress, "_LEAST_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    with LLM(folder, socket=daemon.socket, progress=True) as llm:
        capsys.readouterr()
        pieces = llm.stream(LONG, max_tokens=2)
        next(pieces)
        told = capsys.readouterr().err
        assert "prompts [" in told and told.endswith("\r")
        list(pieces)
        assert capsys.readouterr().err == ""


def test_half_a_character(daemon, folder):
    with LLM(folder, socket=daemon.socket, progress=False) as llm:
        with pytest.raises(ValueError, match="the text is no Unicode"):
            llm.generate("\ud800")
