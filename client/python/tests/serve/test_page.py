"""The examples of the page on texts and on the server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "README.md"


def example(section):
    """The Python of a section."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


@pytest.mark.parametrize(
    "section, words", [("Texts", ["God", "length"]), ("A server", ["the", " "])]
)
def test_example(section, words, daemon, server, folder):
    command = [sys.executable, "-c", example(section), str(folder), f"{server.url}/v1"]
    environment = {**os.environ, "COPPICE_SOCKET": daemon.socket}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert all(word in found.stdout for word in words), found.stdout
