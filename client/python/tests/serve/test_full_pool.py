"""A pool that has no room for all: some are told to come back, the others' answers are right."""

import json
from concurrent.futures import ThreadPoolExecutor

import checkpoint
from serving import Daemon, serving, wait_for
from test_bad_input import post

N_CLIENTS, N_TOKENS, PROMPT_BYTES = 8, 24, 400


def body(number):
    """Clients have nothing in common from the first byte on."""
    prompt = chr(ord("A") + number) + checkpoint.prompt()[:PROMPT_BYTES]
    return {"model": "small", "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0}


def text(answer):
    return answer["choices"][0]["text"]


def test_a_full_pool(tmp_path, folder):
    daemon = Daemon(tmp_path, "--pool=4M", "--extent=2M")
    with serving(folder, daemon.socket) as server:
        alone = [text(post(server, body(number))[1]) for number in range(N_CLIENTS)]
        with ThreadPoolExecutor(N_CLIENTS) as clients:
            found = list(clients.map(lambda number: post(server, body(number)), range(N_CLIENTS)))
        statuses = [status for status, _, _ in found]
        assert set(statuses) == {200, 429}
        for (status, answer, headers), right in zip(found, alone):
            if status == 200:
                assert text(answer) == right
            else:
                assert "come back later" in json.dumps(answer) and headers["Retry-After"]
        wait_for(lambda: server.counter("coppice_sequences") == 0)
        assert [text(post(server, body(number))[1]) for number in range(N_CLIENTS)] == alone
    daemon.end()


def test_a_prompt_that_no_pool_of_the_daemons_has_room_for(tmp_path, folder):
    """Whoever came back later would be told the same."""
    daemon = Daemon(tmp_path, "--pool=4M", "--extent=2M")
    with serving(folder, daemon.socket) as server:
        status, answer, _ = post(server, {**body(0), "prompt": "a" * 7000})
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
        assert "larger pool" in answer["error"]["message"]
        assert post(server, body(0))[0] == 200
    daemon.end()
