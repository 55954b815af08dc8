"""What a request becomes before the daemon hears of it."""

import asyncio
import json
import threading

import pytest

from coppice.generation.answer import Piece
from coppice.generation.checkpoint import Checkpoint
from coppice.generation.sampling import Logprob, Sampling
from coppice.generation.tokenizer import HubTokenizer
from coppice.serve import ask as asks
from coppice.serve.app import Server
from coppice.serve.config import Config
from coppice.serve.errors import ApiError, unavailable
from coppice.serve.reply import ChatReply, TextReply


@pytest.mark.parametrize("given, top_k", [({}, 7), ({"top_k": 0}, 0), ({"top_k": -1}, 0)])
def test_no_limit_goes_before_the_models(given, top_k):
    fields = asks.Fields({"prompt": "a", **given})
    assert asks.completion(fields, {"top_k": 7}).sampling.top_k == top_k


class Recorder:
    """A tokenizer that remembers in which thread it was used."""

    def __init__(self):
        self.threads = []

    def encode(self, text):
        self.threads.append(threading.current_thread())
        return [1]


class Request:
    headers = {}

    def __init__(self, **body):
        self.body = json.dumps(body).encode()

    async def stream(self):
        yield self.body


class Away:
    def model(self):
        raise unavailable("loading")


@pytest.fixture
def lone(folder):
    """A server behind which there is no daemon."""
    server = Server(Config(str(folder), max_n=2, max_streams=8))
    server.tokenizer, server.worker = Recorder(), Away()
    return server


@pytest.mark.parametrize(
    "body, status",
    [({"prompt": ["a"] * 9}, 400), ({"prompt": "a", "n": 3}, 400), ({"prompt": "a"}, 503)],
)
def test_what_is_refused_is_not_encoded(lone, body, status):
    with pytest.raises(ApiError) as failure:
        asyncio.run(lone.completions(Request(**body)))
    assert failure.value.status == status and lone.tokenizer.threads == []


def test_short_prompts_that_are_long_together_leave_the_loop(lone):
    assert asyncio.run(lone._encode(["a" * 3000, [5]])) == [[1], [5]]
    assert lone.tokenizer.threads == [threading.main_thread()]
    asyncio.run(lone._encode(["a" * 3000] * 2))
    assert threading.main_thread() not in lone.tokenizer.threads[1:]


def chunks(reply, tokens, index=0):
    """Logprobs of each token, streamed one by one; any one is as likely as its neighbour."""
    for token in tokens:
        told = [Logprob(token, -1.0, ((token, -1.0), (token ^ 1, -1.0)))]
        line = reply.chunk(Piece(index, "", [token], told, None))
        yield json.loads(line.removeprefix("data: "))["choices"][0]["logprobs"]


def test_logprobs_of_parts_of_characters(folder):
    tokenizer = HubTokenizer(Checkpoint(folder))
    tokens = list("a\u00e9b".encode())
    reply = TextReply("small", tokenizer, False, Sampling(logprobs=1))
    told = list(chunks(reply, tokens))
    assert [one["text_offset"] for one in told] == [[0], [1], [1], [2]]
    assert [one["tokens"] for one in told] == [["a"], ["bytes:\\xc3"], ["bytes:\\xa9"], ["b"]]
    assert set(told[1]["top_logprobs"][0]) == {"bytes:\\xc3", "bytes:\\xc2"}
    assert [one["text_offset"] for one in chunks(reply, tokens, index=1)][0] == [0]
    entry = list(chunks(ChatReply("small", tokenizer, False, Sampling(logprobs=1)), tokens))
    entry = entry[1]["content"][0]
    assert (entry["token"], entry["bytes"]) == ("bytes:\\xc3", [0xC3])
