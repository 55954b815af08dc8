"""What a submitted step costs beyond C, printed: python submit_cost.py BUILD

BUILD: a build folder of the repository, which has coppiced and libcoppice. Nothing fails here: it
is a figure to look at. At most 1.5 us is meant.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import coppice

HERE = Path(__file__).resolve().parent
N_LAYERS, N_ROUNDS = 64, 300


def cost_of_round(lane: coppice.Lane, seq: coppice.Sequence, part: coppice.Part) -> float:
    seq.extend([1])
    begin = time.perf_counter_ns()
    for layer in range(N_LAYERS):
        ticket = lane.step(layer, part)
    cost = (time.perf_counter_ns() - begin) / N_LAYERS
    lane.wait(ticket)
    return cost


def cost_of_python() -> float:
    with coppice.connect() as connection:
        model = connection.model("cost", n_layers=N_LAYERS, n_q_heads=1, n_kv_heads=1, head_dim=16)
        lane, arena = connection.lane(), connection.arena(4096)
        seq = lane.open(model, [1], salt=2)
        q, k, v, o = (arena.tensor((1, 1, 16)) for _ in range(4))
        part = coppice.Part(seq, q, k, v, o)
        return min(cost_of_round(lane, seq, part) for _ in range(N_ROUNDS))


def cost_of_c(build: Path, folder: Path) -> float:
    program, library = folder / "submit_cost", build / "client" / "libcoppice.so"
    flags = ["-O2", f"-I{HERE.parents[2]}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["cc", *flags, HERE / "submit_cost.c", library, "-o", program], check=True)
    return float(subprocess.run([program], check=True, capture_output=True).stdout)


def main(build: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["COPPICE_SOCKET"] = str(folder / "sock")
        daemon = subprocess.Popen([build / "daemon" / "coppiced", "--socket", folder / "sock"])
        try:
            while not (folder / "sock").exists():
                time.sleep(0.01)
            c, python = cost_of_c(build, folder), cost_of_python()
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"a submitted step: C {c:.0f} ns, Python {python:.0f} ns, beyond C {python - c:.0f} ns")


main(Path(sys.argv[1]).resolve())
