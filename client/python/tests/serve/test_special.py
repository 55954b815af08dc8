"""Special tokens in what a model says, such as the marker of a tool's call: which become text."""

import http.client
import json

import pytest

import checkpoint
from coppice import LLM, Sampling
from coppice.generation.checkpoint import Checkpoint
from coppice.generation.tokenizer import HubTokenizer
from serving import serving
from test_bad_input import post

MARK = "[TOOL_CALLS]"
PROMPT = "In the tent"
TOOLS = [{}]  # few letters: those of the marks are in no prompt
MESSAGES = [{"role": "user", "content": PROMPT}]
N_TOKENS = 120


def marked(folder, marks):
    """A checkpoint whose tokenizer has special tokens in place of some letters; the last of them
    ends a text."""
    folder = checkpoint.write(folder, eos_token_id=[ord(letter) for letter in marks][-1:])
    told = json.loads((folder / "tokenizer.json").read_text())
    for letter, text in marks.items():
        del told["model"]["vocab"][letter]
        told["model"]["vocab"][text] = ord(letter)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = {"id": ord(letter), "content": text, "special": True, **flags}
        told["added_tokens"].append(added)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(told))
    return folder


class Said:
    """What the model says, by its plain tokenizer, and with the marker of a call and an end."""

    def __init__(self, daemon, folder, place):
        with LLM(folder, socket=daemon.socket, progress=False) as llm:
            options = {"temperature": 0, "max_tokens": N_TOKENS}
            self.text = llm.generate(PROMPT, **options)[0].text
            self.chat = llm.chat(MESSAGES, tools=TOOLS, **options).text
        known = set(PROMPT + "[{}]")
        both = set(self.text) & set(self.chat) - known
        self.mark, self.end = next(
            (mark, end)
            for mark in sorted(both)
            for end in sorted(both)
            if all(text.index(mark) < text.index(end) for text in (self.text, self.chat))
        )
        self.folder = marked(place / "small", {self.mark: MARK, self.end: "</s>"})

    def expected(self, text, skipped):
        told = text.split(self.end)[0]
        assert self.mark in told
        return told.replace(self.mark, "" if skipped else MARK)


@pytest.fixture(scope="module")
def said(daemon, folder, tmp_path_factory):
    return Said(daemon, folder, tmp_path_factory.mktemp("special"))


@pytest.fixture(scope="module")
def own_server(daemon, said):
    with serving(said.folder, daemon.socket) as one:
        yield one


def streamed(server, path, body):
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    link.request("POST", path, json.dumps({**body, "stream": True}))
    lines = link.getresponse().read().decode().splitlines()
    link.close()
    choices = [json.loads(one[6:])["choices"][0] for one in lines if one.startswith("data: {")]
    return "".join(one["delta"]["content"] if "delta" in one else one["text"] for one in choices)


def asked(server, path, stream, **given):
    body = {"model": "small", "max_tokens": N_TOKENS, "temperature": 0, **given}
    if stream:
        return streamed(server, path, body)
    status, answer, _ = post(server, body, path)
    assert status == 200, answer
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"] if "message" in choice else choice["text"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "given, skipped",
    [
        ({}, False),
        ({"tool_choice": "auto"}, False),
        ({"tool_choice": "none"}, True),
        ({"tool_choice": "none", "skip_special_tokens": False}, False),
        ({"skip_special_tokens": True}, True),
    ],
)
def test_the_marker_of_a_call_is_text_where_there_are_tools(
    own_server, said, stream, given, skipped
):
    """The token that ends the answer is none, either way."""
    body = {"messages": MESSAGES, "tools": TOOLS, **given}
    text = asked(own_server, "/v1/chat/completions", stream, **body)
    assert text == said.expected(said.chat, skipped)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "given, skipped",
    [
        ({}, True),
        ({"skip_special_tokens": None}, True),
        ({"skip_special_tokens": True}, True),
        ({"skip_special_tokens": False}, False),
    ],
)
def test_special_tokens_are_text_where_that_is_asked_for(own_server, said, stream, given, skipped):
    right = said.expected(said.text, skipped)
    assert asked(own_server, "/v1/completions", stream, prompt=PROMPT, **given) == right
    chat = asked(own_server, "/v1/chat/completions", stream, messages=MESSAGES, **given)
    assert chat == right


def test_offsets_are_of_the_text_that_comes(own_server):
    for skip in (True, False):
        body = {"model": "small", "prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0}
        body |= {"logprobs": 1, "skip_special_tokens": skip}
        choice = post(own_server, body)[1]["choices"][0]
        told = choice["logprobs"]
        at = told["text_offset"][told["tokens"].index(MARK)]
        assert choice["text"].startswith("" if skip else MARK, at)
        assert told["text_offset"][-1] == len(choice["text"])


def test_the_same_of_an_llm(daemon, said):
    options = {"temperature": 0, "max_tokens": N_TOKENS}
    with LLM(said.folder, socket=daemon.socket, progress=False) as llm:
        for skip in (True, False):
            [output] = llm.generate(PROMPT, skip_special_tokens=skip, **options)
            assert output.text == said.expected(said.text, skip)
        for chat in (llm.chat(MESSAGES, Sampling(**options), tools=TOOLS),
                     llm.chat(MESSAGES, tools=TOOLS, **options)):
            assert chat.text == said.expected(said.chat, False)
        assert llm.chat(MESSAGES, **options).text == said.expected(said.text, True)
        with pytest.raises(ValueError, match="skip_special_tokens has to be true or false"):
            llm.generate(PROMPT, skip_special_tokens="no")


class Refuses:
    def step(self, tokenizer, token):
        raise Exception("Invalid prefix encountered")


@pytest.mark.parametrize("skip, mark", [(True, ""), (False, MARK)])
def test_beside_parts_of_characters_and_where_it_is_decoded_anew(tmp_path, skip, mark):
    tokenizer = HubTokenizer(Checkpoint(marked(tmp_path / "small", {"#": MARK})))
    decoder = tokenizer.decoder(skip)
    tokens = [ord("#"), 0xC3]
    assert "".join(map(decoder.feed, tokens)) + decoder.rest() == mark + "\ufffd"
    decoder._stream = Refuses()
    assert decoder.feed(ord("#")) == mark and decoder.feed(ord("#")) == mark
