"""What may be given to `coppice generate` by mistake, and what it shows of a long prompt."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading

import pytest

import checkpoint
from coppice.generation import progress
from coppice.llm import LLM

LONG = "In the beginning " * 160


@pytest.fixture(scope="module")
def daemon(own_daemon):
    """What a long prompt takes of a pool is counted in another test."""
    return own_daemon


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


_SHOWS_BARS_AT_ONCE = """
import sys
from coppice import __main__
from coppice.generation import progress

progress._LEAST_S = progress._EVERY_S = 0.0
sys.exit(__main__.main())
"""


def on_a_terminal(daemon, *words):
    """What the command writes there, and on stdout."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-c", _SHOWS_BARS_AT_ONCE, "generate", "--socket", daemon.socket]
    told, thread = bytearray(), threading.Thread(target=lambda: told.extend(all_of(ours)))
    thread.start()
    found = subprocess.run([*line, *words], stdout=subprocess.PIPE, stderr=theirs, timeout=120)
    os.close(theirs)
    thread.join()
    os.close(ours)
    assert found.returncode == 0, told
    return told.decode(), found.stdout.decode()


def all_of(terminal):
    """Until nobody has the other end."""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            yield from part


def bars(told, what):
    """Shares that were shown, each over what was there before."""
    return [int(share) for share in re.findall(rf"\r{what} \[[# ]{{30}}\] +(\d+)% of ", told)]


@pytest.mark.parametrize("options", [[], ["--n=2"]])
def test_bars_on_a_terminal(daemon, folder, options):
    """Of weights and of a prompt, whether pieces are printed as they come or all at the end."""
    prompt = f"{options} {LONG}"  # that nobody has computed
    told, text = on_a_terminal(daemon, str(folder), prompt, "--max-tokens=2", *options)
    for what in ("loading small", "prompts"):
        shares = bars(told, what)
        assert shares and shares == sorted(shares) and shares[-1] <= 100
    assert len(bars(told, "prompts")) > 1 and "B" in told and "tokens" in told
    assert re.search(r"\r +\r$", told) and "\n" not in told  # gone
    assert "\r" not in text and text.endswith("\n")
    told, _ = on_a_terminal(daemon, str(folder), prompt, "--max-tokens=2", "--no-progress")
    assert told == ""


ROLES = "{% for one in messages %}<{{ one.role }}>{{ one.content }}{% endfor %}<assistant>"


@pytest.mark.parametrize(
    "options, prompt",
    [
        ([], "Who?"),
        (["--chat"], "<user>Who?<assistant>"),
        (["--chat", "--system", "Be brief."], "<system>Be brief.<user>Who?<assistant>"),
    ],
)
def test_messages_of_a_user_and_of_a_system(daemon, tmp_path, options, prompt):
    folder = checkpoint.write(tmp_path / "small")
    (folder / "chat_template.jinja").write_text(ROLES)
    more = ["--max-tokens=8", "--temperature=0"]
    found = command(daemon, str(folder), "Who?", "--json", *options, *more)
    told = json.loads(found.stdout)
    assert bytes(told["prompt"]).decode() == prompt
    printed = command(daemon, str(folder), "Who?", *options, *more).stdout
    assert printed == told["continuations"][0]["text"] + "\n"


def test_a_system_without_a_chat(daemon, folder):
    found = command(daemon, str(folder), "Who?", "--system", "Be brief.")
    assert "--system goes with --chat" in said(found)


def test_half_a_character(daemon, folder):
    with LLM(folder, socket=daemon.socket, progress=False) as llm:
        with pytest.raises(ValueError, match="the text is no Unicode"):
            llm.generate("\ud800")
