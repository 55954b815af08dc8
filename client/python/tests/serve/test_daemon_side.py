"""What requests are at the daemon: pins, forks, and sequences of clients that hang up."""

import http.client
import json

import pytest

import checkpoint
from coppice import LLM
from serving import serving, wait_for
from test_bad_input import GOOD, post

PROMPT, GREEDY = checkpoint.prompt(), checkpoint.greedy()
LONG = (PROMPT * 14)[:8000]


@pytest.fixture(scope="module")
def own_server(own_daemon, folder):
    with serving(folder, own_daemon.socket) as one:
        yield one


def cached(server, prompt):
    _, answer, _ = post(server, {**GOOD, "prompt": prompt})
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_session_is_pinned_at_the_daemon(own_daemon, own_server):
    """Its tokens are there when all that is idle has gone; a later pin is in its place."""
    own_daemon.end_pins()
    for n_times in (1, 2):
        headers = {"Coppice-Session": "agent", "Coppice-Pin": str(60 * n_times)}
        assert post(own_server, {**GOOD, "prompt": PROMPT}, **headers)[0] == 200
        assert post(own_server, {**GOOD, "prompt": "Idle " + PROMPT})[0] == 200
        own_daemon.ctl("evict")
        [pin] = own_daemon.ctl("pins")["pins"]
        assert pin["n_tokens"] == len(PROMPT) + 3  # the last of the answer is not computed
        assert 60 * (n_times - 1) < pin["left_ns"] / 1e9 <= 60 * n_times
    assert cached(own_server, "Idle " + PROMPT) == 0
    assert cached(own_server, PROMPT + GREEDY[:4]) == len(PROMPT) + 3
    own_daemon.end_pins()
    assert own_daemon.held() == {} and cached(own_server, PROMPT) == 0


def n_computed(daemon):
    return sum(one["tokens_computed"] for one in daemon.ctl("sessions")["sessions"])


def test_a_prompt_is_computed_once_for_n_answers(own_daemon, own_server):
    own_daemon.ctl("evict")
    before = n_computed(own_daemon)
    body = {**GOOD, "prompt": "n " + PROMPT, "n": 8, "seed": 1, "temperature": 1}
    _, answer, _ = post(own_server, body)
    assert len(answer["choices"]) == 8
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert n_computed(own_daemon) == before + len(PROMPT) + 2 + 8 * 3


def test_a_prompt_is_computed_once_for_more_answers_than_a_lane_takes(own_daemon, folder):
    with LLM(folder, socket=own_daemon.socket, progress=False) as llm:
        own_daemon.ctl("evict")
        before = n_computed(own_daemon)
        llm.generate(PROMPT, n=40, seed=1, max_tokens=4)
        # the second and third 16 find all but the prompt's last token, whose row they want
        assert n_computed(own_daemon) == before + len(PROMPT) + 2 + 40 * 3


def test_more_than_a_session_may_ask_wait_for_one_prompt(own_daemon, folder):
    """Of 100 who come at once one computes it."""
    prompts = [f"{LONG[:3000]}{number:03}" for number in range(100)]
    with LLM(folder, socket=own_daemon.socket, progress=False) as llm:
        own_daemon.ctl("evict")
        before = n_computed(own_daemon)
        outputs = llm.generate(prompts, temperature=0, max_tokens=4)
        assert n_computed(own_daemon) < before + 3000 + 100 * (3 + 4)
        [alone] = llm.generate(prompts[70], temperature=0, max_tokens=4)
        assert outputs[70].text == alone.text


def ask(server, path, **body):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", path, json.dumps({"model": "small", "temperature": 0, **body}))
    return link


def hang_up(link):
    link.sock.close()
    link.close()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_who_hangs_up_while_he_waits_for_a_whole_answer(own_daemon, own_server, path):
    hung_up = own_server.counter("coppice_hung_up_total")
    before = n_computed(own_daemon)
    messages = [{"role": "user", "content": PROMPT}]
    link = ask(own_server, path, prompt=PROMPT, messages=messages, max_tokens=7000)
    wait_for(lambda: own_daemon.ctl("status")["n_seqs"] == 1)
    hang_up(link)
    wait_for(lambda: not own_daemon.held(), limit=10)
    assert n_computed(own_daemon) < before + 6000
    assert own_server.counter("coppice_hung_up_total") == hung_up + 1
    assert own_server.counter("coppice_streams") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_while_his_prompt_is_computed(own_daemon, own_server, stream):
    own_daemon.ctl("evict")
    before = n_computed(own_daemon)
    link = ask(own_server, "/v1/completions", prompt=LONG, max_tokens=16, stream=stream)
    wait_for(lambda: own_daemon.ctl("status")["n_seqs"] == 1)
    hang_up(link)
    wait_for(lambda: not own_daemon.held(), limit=10)
    assert n_computed(own_daemon) < before + len(LONG)
    assert own_server.counter("coppice_streams") == 0
