"""Many clients at once, some of which hang up: the others' answers are right, nothing is left."""

import http.client
import json
import random
import threading

import checkpoint
from serving import wait_for

PROMPT, GREEDY = checkpoint.prompt(), checkpoint.greedy()
N_CLIENTS, N_HANGING_UP, N_TOKENS = 200, 50, 16


def ask(server, number, streamed):
    """Each has a prompt of its own behind what all have in common."""
    cut = 500 + number % 100
    body = {"model": "small", "prompt": PROMPT[:cut], "max_tokens": N_TOKENS, "temperature": 0}
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    link.request("POST", "/v1/completions", json.dumps({**body, "stream": streamed}))
    return link


def text_of(answer, streamed):
    if not streamed:
        return json.loads(answer.read())["choices"][0]["text"]
    lines = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def stay(server, number, found):
    streamed = number % 2 == 0
    link = ask(server, number, streamed)
    found[number] = text_of(link.getresponse(), streamed)
    link.close()


def hang_up(server, number, rng):
    """Before the answer begins, or in the middle of it."""
    link = ask(server, number, True)
    if rng.random() < 0.7:
        link.getresponse().read(rng.randint(1, 2000))
    link.sock and link.sock.close()
    link.close()


def everybody(server, seed):
    rng, found = random.Random(seed), {}
    leavers = set(rng.sample(range(N_CLIENTS), N_HANGING_UP))
    threads = [
        threading.Thread(target=hang_up, args=(server, i, random.Random(i)))
        if i in leavers
        else threading.Thread(target=stay, args=(server, i, found))
        for i in range(N_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(found) == set(range(N_CLIENTS)) - leavers
    return found


def test_a_crowd(server, daemon):
    daemon.end_pins()
    alone = {}
    for cut in range(100):
        stay(server, cut, alone)
    before, hung_up = server.descriptors(), server.counter("coppice_hung_up_total")
    of_daemon = daemon.descriptors()
    daemon.ctl("evict")  # so most wait for what one computes, who may hang up
    found = everybody(server, seed=1)
    wrong = {i for i in found if found[i] != alone[i % 100]}
    assert not wrong
    wait_for(lambda: server.counter("coppice_streams") == 0)
    wait_for(lambda: server.counter("coppice_sequences") == 0)
    wait_for(lambda: server.descriptors() <= before)
    assert server.counter("coppice_hung_up_total") > hung_up
    wait_for(lambda: daemon.descriptors() <= of_daemon)
    wait_for(lambda: not daemon.held())
