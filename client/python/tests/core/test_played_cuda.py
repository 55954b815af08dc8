"""Streams and graphs where no GPU is: each case in a process of its own, before the driver that is
played is found there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, Daemon

SCRIPT = Path(__file__).with_name("played_cuda.py")
CASES = re.findall(r"^def (\w+)\(scene: Scene\)", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-D_GNU_SOURCE"]
    source = ROOT / "tests" / "e2e" / "fake_driver.c"
    subprocess.run(["cc", *flags, source, "-o", folder / "libcuda.so.1"], check=True)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_played(daemon: Daemon, driver: Path, case: str) -> None:
    environment = {**os.environ, "COPPICE_SOCKET": daemon.socket, "LD_LIBRARY_PATH": str(driver)}
    command = [sys.executable, str(SCRIPT), case]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
