"""Texts that are none, and JSON that is nested too deep, are said to be so."""

import asyncio
import json

import pytest

from coppice.generation.tokenizer import NoTokenizer
from coppice.serve.app import Server
from coppice.serve.config import Config
from coppice.serve.errors import ApiError
from test_bad_input import GOOD, post
from test_request import Request

LONE = "\ud800"
CHAT = {"model": "small", "max_tokens": 1}


def said(content, **beside):
    return {**CHAT, "messages": [{"role": "user", "content": content, **beside}]}


def called(arguments):
    return said("a", tool_calls=[{"function": {"name": "f", "arguments": arguments}}])


TEXTS = [
    ({"prompt": "a" + LONE}, "prompt is no", "prompt"),
    ({"prompt": ["a", LONE]}, "prompt[1] is no", "prompt"),
    ({"stop": [LONE]}, "stop[0] is no", "stop"),
    ({"user": {LONE: 1}}, "a name in user is no", "user"),
    ({LONE: 1}, "the name of a field is no", None),
]
MESSAGES = [
    (said(LONE), "messages[0].content is no", "messages"),
    (said([{"type": "text", "text": LONE}]), "messages[0].content[0].text is no", "messages"),
    ({**said("a"), "tools": [{"type": LONE}]}, "tools[0].type is no", "tools"),
    (called('{"a": "\\ud800"}'), "tool_calls[0].function.arguments.a is no", "messages"),
    (called("[" * 30000 + "]" * 30000), "arguments: lists and objects are nested", "messages"),
    (called("[" * 30000), "arguments: lists and objects are nested", "messages"),
]


def refused(server, body, sentence, param, path):
    status, answer, _ = post(server, body, path)
    error = answer["error"]
    assert status == 400 and sentence in error["message"] and error["param"] == param
    assert "nested" in sentence or "a lone surrogate, \\ud800, at character" in error["message"]


@pytest.mark.parametrize("change, sentence, param", TEXTS)
def test_a_lone_surrogate(server, change, sentence, param):
    refused(server, {**GOOD, **change}, sentence, param, "/v1/completions")


@pytest.mark.parametrize("body, sentence, param", MESSAGES)
def test_a_lone_surrogate_in_a_chat(server, body, sentence, param):
    refused(server, body, sentence, param, "/v1/chat/completions")


def test_a_lone_surrogate_that_is_no_escape(server):
    for body in (b'{"prompt": "\xed\xa0\x80"}', '{"prompt": "\\ud800"}'.encode("utf-16")):
        status, answer, _ = post(server, body)
        assert status == 400 and "prompt is no Unicode text" in answer["error"]["message"]


def test_a_pair_of_surrogates_is_a_character(server):
    assert post(server, {**GOOD, "prompt": "\U0001f600"})[0] == 200
    assert post(server, said("\U0001f600"), "/v1/chat/completions")[0] == 200


@pytest.mark.parametrize("depth", (700, 850, 950))
def test_what_is_nested_as_deep_as_the_body_can_be(server, depth):
    """Whoever of those behind it has too short a stack says so."""
    nested = "[" * depth + "]" * depth
    tools = json.dumps({**said("a"), "tools": ["x"]}).replace('"x"', nested)
    for body in (json.dumps(called(nested)), tools):
        status, answer, _ = post(server, body.encode(), "/v1/chat/completions")
        assert status in (200, 400), answer


class Ready:
    def model(self):
        return None


class Template(NoTokenizer):
    def chat(self, messages, tools):
        raise RecursionError


def test_a_template_whose_stack_ends(folder):
    server = Server(Config(str(folder)))
    server.tokenizer, server.worker = Template(), Ready()
    with pytest.raises(ApiError, match="messages and tools: lists and objects are nested") as found:
        asyncio.run(server.chat(Request(**said("a"))))
    assert found.value.status == 400
