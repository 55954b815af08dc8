"""A daemon on the CPU, a server in front of it, and clients: processes of their own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from coppice import connect

ROOT = Path(__file__).resolve().parents[4]
DAEMON = os.environ.get("COPPICE_DAEMON", str(ROOT / "build" / "check" / "daemon" / "coppiced"))
CTL = Path(DAEMON).parents[1] / "client" / "ctl" / "coppicectl"
START_S = 60


def wait_for(what, limit=START_S):
    """Until what() is true; a failure otherwise."""
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, f"{what} does not come true"
        time.sleep(0.02)


def n_descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


class Daemon:
    def __init__(self, folder, *options):
        self.socket = str(folder / "coppiced.sock")
        self.options = ["--pool=128M", *options]
        self.start()

    def start(self):
        command = [DAEMON, "--socket", self.socket, "--backend=cpu", *self.options]
        self.process = subprocess.Popen([*command, "--log-level=warning"])
        wait_for(self.is_up)

    def is_up(self):
        assert self.process.poll() is None, "the daemon has ended"
        try:
            connect(self.socket, timeout=1).close()
        except OSError:
            return False
        return True

    def descriptors(self):
        return n_descriptors(self.process)

    def ctl(self, verb, *options):
        """What coppicectl finds."""
        line = [CTL, "--socket", self.socket, "--json", verb, *options]
        return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)

    def held(self):
        """What it has beyond what eviction takes, and pins: sequences, and each single page."""
        self.ctl("evict")
        found = self.ctl("status")
        names = ("n_seqs", "n_pages", "n_claims", "n_pins", "prompt_bytes")
        return {name: found[name] for name in names if found[name]}

    def end_pins(self):
        """Of others' tests: with all that is idle."""
        self.ctl("evict", "--pinned")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


class Server:
    def __init__(self, folder, daemon_socket, *options, key="", program=("-m", "coppice.serve")):
        # It does not listen, so that the server may, and the kernel gives the port to nobody else.
        self.kept = socket.socket()
        self.kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.kept.bind(("127.0.0.1", 0))
        self.port = self.kept.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, *program, str(folder), "--socket", daemon_socket]
        command += ["--port", str(self.port), "--log-level=warning", *options]
        environment = {**os.environ, "COPPICE_API_KEY": key}
        self.process = subprocess.Popen(command, env=environment)

    def get(self, path):
        """Status and text."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def is_ready(self):
        return self.get("/health")[0] == 200

    def counter(self, name):
        """Of /metrics, which has to have it."""
        status, text = self.get("/metrics")
        assert status == 200, text
        found = [line for line in text.splitlines() if line.startswith(name)]
        assert found, f"/metrics does not tell {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def descriptors(self):
        return n_descriptors(self.process)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.kept.close()


@contextlib.contextmanager
def serving(*arguments, **options):
    one = Server(*arguments, **options)
    try:
        wait_for(one.is_ready)
        yield one
    finally:
        one.end()
