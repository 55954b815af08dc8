"""What is wrong with a request is said in the API's shape, and leaves nothing behind."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import pytest

import checkpoint
import coppice
from serving import serving, wait_for

PROMPT = "In the beginning"
GOOD = {"model": "small", "prompt": PROMPT, "max_tokens": 4, "temperature": 0}


def said(text):
    return [{"role": "user", "content": text}]


GOOD_CHAT = {"model": "small", "messages": said(PROMPT), "max_tokens": 4, "temperature": 0}


def post(server, body, path="/v1/completions", **headers):
    """Status, the answer's object, its headers."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        link.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers)
        answer = link.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        link.close()


FIELDS = [
    ({"model": "other"}, 404, "model_not_found", "ask for 'small'"),
    ({"prompt": [1] * 8190}, 400, "context_length_exceeded", "shorten the prompt"),
    ({"prompt": [256]}, 400, None, "token 256"),
    ({"prompt": []}, 400, None, "prompt"),
    ({"prompt": None}, 400, None, "prompt is missing"),
    ({"prompt": ""}, 400, None, "empty"),
    ({"temperature": -1}, 400, None, "temperature"),
    ({"temperature": "hot"}, 400, None, "temperature has to be a number"),
    ({"temperature": 10**400}, 400, None, "temperature is too large"),
    ({"top_k": -2}, 400, None, "top_k"),
    ({"top_p": 0}, 400, None, "top_p"),
    ({"max_tokens": 0}, 400, None, "max_tokens"),
    ({"max_tokens": True}, 400, None, "max_tokens has to be a whole number"),
    ({"n": 17}, 400, None, "n may be 16"),
    ({"n": 16, "prompt": [PROMPT] * 20}, 400, None, "prompts times n"),
    ({"stop": ["a", 1]}, 400, None, "stop"),
    ({"stop": False}, 400, None, "stop has to be a text or a list"),
    ({"stop": {}}, 400, None, "stop has to be a text or a list"),
    ({"stop_token_ids": [256]}, 400, None, "stop_token_ids has 256, which is not of the model's"),
    ({"stop_token_ids": [3, -1]}, 400, None, "stop_token_ids has -1, which is no token"),
    ({"logprobs": 65}, 400, None, "logprobs"),
    ({"skip_special_tokens": 0}, 400, None, "skip_special_tokens has to be true or false"),
    ({"frequency_penalty": 0.5}, 400, None, "frequency_penalty is not supported"),
    ({"logit_bias": {"5": 1}}, 400, None, "logit_bias is not supported"),
    ({"response_format": {"type": "json_object"}}, 400, None, "response_format"),
]


@pytest.mark.parametrize("change, status, code, sentence", FIELDS)
def test_fields(server, change, status, code, sentence):
    found, answer, _ = post(server, {**GOOD, **change})
    assert (found, answer["error"]["code"]) == (status, code)
    assert sentence in answer["error"]["message"]


BODIES = [
    (b"{", 400, "no JSON"),
    (b"\xff\xfe\x00", 400, "no JSON"),
    (b"[" * 90000, 400, "no JSON"),
    (b"[]", 400, "object"),
    (b" " * 100001, 413, "send less"),
]


@pytest.mark.parametrize("body, status, sentence", BODIES)
def test_bodies(server, body, status, sentence):
    found, answer, _ = post(server, body)
    assert found == status and sentence in answer["error"]["message"]


def send_too_much_in_chunks(server):
    """The status."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    link.request("POST", "/v1/completions", iter([b" " * 60000] * 2), encode_chunked=True)
    status = link.getresponse().status
    link.close()
    return status


def test_a_body_without_length_that_is_too_large(server):
    assert send_too_much_in_chunks(server) == 413


MESSAGES = [None, [], "text", [{"content": "a"}], [{"role": "user", "content": [{"type": "x"}]}]]


@pytest.mark.parametrize("messages", MESSAGES)
def test_messages(server, messages):
    body = {"model": "small", "messages": messages}
    status, answer, _ = post(server, body, "/v1/chat/completions")
    assert status == 400 and "message" in answer["error"]["message"]


CHAT_FIELDS = [
    ("max_completion_tokens", {"max_completion_tokens": 0, "max_tokens": 4}),
    ("max_tokens", {"max_tokens": 0}),
    ("top_logprobs", {"top_logprobs": 5}),
    ("top_logprobs", {"top_logprobs": "x"}),
    ("top_logprobs", {"top_logprobs": -1, "logprobs": False}),
    ("top_logprobs", {"top_logprobs": 65, "logprobs": True}),
    ("skip_special_tokens", {"skip_special_tokens": "no"}),
]


@pytest.mark.parametrize("param, change", CHAT_FIELDS)
def test_fields_of_a_chat(server, param, change):
    body = {"model": "small", "messages": [{"role": "user", "content": "a"}], **change}
    status, answer, _ = post(server, body, "/v1/chat/completions")
    error = answer["error"]
    assert (status, error["param"]) == (400, param) and error["message"].startswith(f"{param} ")


def test_a_path_that_is_not_there(server):
    assert post(server, {}, "/v1/other")[0] == 404
    status, text = server.get("/v1/completions")
    assert status == 405 and "error" in json.loads(text)


def send_half_a_body(server):
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        link.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{")
        time.sleep(0.05)


def test_a_client_that_goes_in_the_middle_of_its_body(server):
    send_half_a_body(server)
    assert post(server, GOOD)[0] == 200


def answers(server, path, body, status, **headers):
    assert post(server, body, path, **headers)[0] == status


def all_kinds(server):
    """Each a request, or what a client may do in place of one."""
    texts, chats = "/v1/completions", "/v1/chat/completions"
    for change, status, *_ in FIELDS:
        yield partial(answers, server, texts, {**GOOD, **change}, status)
    refused = [{"messages": one} for one in (*MESSAGES, said("a" * 9000), said(""))]
    for change in (*refused, *(change for _, change in CHAT_FIELDS), {"tool_choice": "x"}):
        yield partial(answers, server, chats, {**GOOD_CHAT, **change}, 400)
    yield partial(answers, server, chats, {**GOOD_CHAT, "tools": [{"type": "function"}]}, 200)
    for body, status, _ in BODIES:
        yield partial(answers, server, texts, body, status)
        yield partial(answers, server, chats, body, status)
    yield partial(answers, server, texts, {**GOOD, "model": 5}, 400)
    yield partial(answers, server, texts, GOOD, 400, **{"Coppice-Pin": "9e99"})
    yield partial(send_too_much_in_chunks, server)
    yield partial(send_half_a_body, server)
    yield partial(hang_up, server, texts, GOOD)
    yield partial(hang_up, server, chats, GOOD_CHAT)


def test_they_leave_nothing(server, daemon):
    """Sequences and pages, after each of all that is refused above; descriptors, after many."""
    daemon.end_pins()
    wait_for(lambda: not daemon.held())
    for ask in all_kinds(server):
        ask()
        wait_for(lambda: not daemon.held())
    wait_for(lambda: server.counter("coppice_streams") == 0)
    before, of_daemon = server.descriptors(), daemon.descriptors()
    for _ in range(5):
        for ask in all_kinds(server):
            ask()
    wait_for(lambda: not daemon.held())
    wait_for(lambda: server.descriptors() <= before)
    wait_for(lambda: daemon.descriptors() <= of_daemon)


def hang_up(server, path, good):
    """In the middle of a stream."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    link.request("POST", path, json.dumps({**good, "max_tokens": 900, "stream": True}))
    link.getresponse().read(10)
    link.close()


@pytest.fixture(scope="module")
def guarded(daemon, folder, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("one\ntwo\n\u00e9\u00e0\n", encoding="utf-8")
    options = [f"--api-key-file={keys}", "--max-streams=2"]
    with serving(folder, daemon.socket, *options, key="three") as one:
        yield one


@pytest.mark.parametrize("key", ["one", "two", "three"])
def test_a_key(guarded, key):
    assert post(guarded, GOOD, Authorization=f"Bearer {key}")[0] == 200


def test_a_key_that_is_not_ascii(guarded):
    """It is what the file's bytes are."""
    for key, status in ((b"\xc3\xa9\xc3\xa0", 200), (b"\xe9\xe0", 401), (b"\xc3\xa9\xc3", 401)):
        assert post(guarded, GOOD, Authorization=b"Bearer " + key)[0] == status


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer four", "Basic one", "one"])
def test_no_key(guarded, header):
    status, answer, _ = post(guarded, GOOD, Authorization=header)
    assert status == 401 and answer["error"]["code"] == "invalid_api_key"
    assert guarded.get("/v1/models")[0] == 401
    assert guarded.get("/health")[0] == 200


def test_whoever_has_no_key_makes_no_labels(guarded):
    for number in range(3):
        assert guarded.get(f"/v1/models/label-{number}")[0] == 401
    assert "label-" not in guarded.get("/metrics")[1]
    assert guarded.counter('coppice_requests_total{endpoint="/v1/models/{name:path}"') >= 3


def test_a_pin_that_the_daemon_does_not_allow(daemon, folder):
    """It is refused before anything is computed, whole or streamed, and keeps nothing."""
    with serving(folder, daemon.socket, "--max-pin-s=1e8") as server:
        for stream in (False, True):
            status, answer, _ = post(server, {**GOOD, "stream": stream}, **{"Coppice-Pin": "9e7"})
            assert status == 400 and "max_pin_ms" in answer["error"]["message"]
        assert post(server, GOOD, **{"Coppice-Pin": "60", "Coppice-Session": "a"})[0] == 200
        assert server.counter("coppice_generated_tokens_total") == 4


def test_more_than_there_is_room_for(guarded):
    long = {**GOOD, "max_tokens": 4000, "n": 2, "stream": True}
    link = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=120)
    link.request("POST", "/v1/completions", json.dumps(long), {"Authorization": "Bearer one"})
    link.getresponse().read(10)
    status, answer, headers = post(guarded, GOOD, Authorization="Bearer one")
    assert status == 429 and "come back later" in answer["error"]["message"]
    assert int(headers["Retry-After"]) >= 1
    link.close()
    wait_for(lambda: post(guarded, GOOD, Authorization="Bearer one")[0] == 200)


def refused(*arguments):
    """Status and words of a server that does not start."""
    command = [sys.executable, "-m", "coppice.serve", *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.stdout == "" and "Traceback" not in found.stderr
    return found.returncode, found.stderr


def test_a_folder_that_is_no_checkpoint(tmp_path):
    status, words = refused(tmp_path)
    assert status == 1 and "config.json" in words


def test_a_server_that_cannot_listen(server, folder):
    for options in ([], ["--workers=2"]):
        status, words = refused(folder, f"--port={server.port}", *options)
        taken = f"cannot listen on 127.0.0.1:{server.port}: Address already in use\n"
        assert (status, words) == (1, "coppice.serve: " + taken)


@pytest.mark.parametrize(
    "option, sentence",
    [
        ("--port=80000", "a number from 0 to 65535, not '80000'"),
        ("--workers=0", "a number from 1 to 1024, not '0'"),
        ("--max-n=many", "a number from 1 to"),
        ("--max-pin-s=nan", "a number of seconds, not 'nan'"),
    ],
)
def test_options(folder, option, sentence):
    status, words = refused(folder, option)
    assert status == 2 and sentence in words


def test_keys_that_are_not_there(folder):
    assert refused(folder, "--api-key-file=/nowhere") == (
        1,
        "coppice.serve: /nowhere: No such file or directory\n",
    )


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_file_of_keys_that_has_none(folder, tmp_path, text):
    (tmp_path / "keys").write_text(text)
    status, words = refused(folder, f"--api-key-file={tmp_path}/keys")
    assert status == 1 and f"{tmp_path}/keys has no API key: write one a line" in words


@pytest.mark.parametrize("options", [(), ("--workers=2",)])
def test_an_interrupt_ends_it_without_a_traceback(daemon, folder, options):
    command = [sys.executable, "-m", "coppice.serve", str(folder), "--socket", daemon.socket]
    server = subprocess.Popen(
        [*command, "--port=0", *options],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert any(" ready: " in line for line in server.stderr)
    server.send_signal(signal.SIGINT)
    words = server.stderr.read()
    assert server.wait(30) == (0 if options else 130) and "Traceback" not in words


@pytest.mark.parametrize(
    "index, sentence",
    [
        ("{}", "weight_map"),
        ("{", "weight_map"),
        ('{"weight_map": []}', "weight_map"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "not in its folder"),
        ('{"weight_map": {"a": "/a.safetensors"}}', "not in its folder"),
        ('{"weight_map": {"a": 5}}', "not in its folder"),
    ],
)
def test_an_index_that_is_none(tmp_path, index, sentence):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(coppice.Invalid, match=sentence):
        coppice.weight_files(tmp_path)


def test_a_checkpoint_without_tokenizer(daemon, tmp_path):
    bare = checkpoint.without_tokenizer(tmp_path / "bare")
    with serving(bare, daemon.socket, "--name=bytes") as one:
        body = {"model": "bytes", "prompt": list(checkpoint.prompt().encode()), "temperature": 0}
        _, answer, _ = post(one, {**body, "return_token_ids": True})
        assert answer["choices"][0]["token_ids"] == list(checkpoint.greedy()[:16].encode())
        status, answer, _ = post(one, {**body, "prompt": "text"})
        assert status == 400 and "lists of tokens" in answer["error"]["message"]
