"""A long text is encoded beside other threads: a server's streams go on meanwhile."""

import sys
import threading
import time

from coppice.generation.checkpoint import Checkpoint
from coppice.generation.tokenizer import HubTokenizer

N_CHARACTERS = 1 << 20
LONG_S = 60.0  # whoever has Python's lock keeps it until he lets go of it


def test_others_run_meanwhile(folder):
    tokenizer = HubTokenizer(Checkpoint(folder))
    text = "a" * N_CHARACTERS
    n_turns, over = 0, threading.Event()

    def turn():
        nonlocal n_turns
        while not over.is_set():
            n_turns += 1
            time.sleep(0)  # lets go of it

    former = sys.getswitchinterval()
    thread = threading.Thread(target=turn)
    thread.start()
    try:
        sys.setswitchinterval(LONG_S)
        before = n_turns
        tokens = tokenizer.encode(text)
        after = n_turns
    finally:
        sys.setswitchinterval(former)
        over.set()
        thread.join()
    assert len(tokens) == N_CHARACTERS
    assert after > before
