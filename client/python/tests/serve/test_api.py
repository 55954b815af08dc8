"""Every endpoint by the client that others use, streaming and not."""

import openai
import pytest

import checkpoint

PROMPT, GREEDY = checkpoint.prompt(), checkpoint.greedy()


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as one:
        yield one


def complete(client, **options):
    given = {"model": "small", "prompt": PROMPT, "max_tokens": 32, "temperature": 0, **options}
    return client.completions.create(**given)


def chat(client, **options):
    messages = [{"role": "user", "content": PROMPT}]
    given = {"messages": messages, "max_tokens": 32, "temperature": 0, **options}
    return client.chat.completions.create(model="small", **given)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").id == "small"
    with pytest.raises(openai.NotFoundError, match="ask for 'small'"):
        client.models.retrieve("other")


def test_completion(client):
    answer = complete(client)
    assert answer.choices[0].text == GREEDY[:32]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == 600 and answer.usage.completion_tokens == 32
    assert complete(client).usage.prompt_tokens_details.cached_tokens == 599


def test_completion_streamed(client):
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == GREEDY[:32]
    assert len(chunks) == 33
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 32


def test_chat(client):
    answer = chat(client)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == GREEDY[:32]
    assert answer.object == "chat.completion"


def test_chat_streamed(client):
    chunks = list(chat(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == GREEDY[:32]
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "length"]


def test_prompts_may_be_tokens_and_several(client):
    prompts = [list(PROMPT.encode()), list(PROMPT[:-1].encode())]
    answer = complete(client, prompt=prompts, extra_body={"return_token_ids": True})
    assert answer.choices[0].text == GREEDY[:32]
    assert answer.choices[0].token_ids == list(GREEDY[:32].encode())
    assert [choice.index for choice in answer.choices] == [0, 1]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stop_text_over_token_borders(client, streamed):
    stop = GREEDY[10:15]
    answer = complete(client, stop=[stop, "never to be seen"], stream=streamed)
    choices = [one.choices[0] for one in answer] if streamed else answer.choices
    assert "".join(choice.text for choice in choices) == GREEDY[: GREEDY.index(stop)]
    assert choices[-1].finish_reason == "stop"


def test_a_stop_token(client):
    answer = complete(client, extra_body={"stop_token_ids": [ord(GREEDY[5])]})
    assert answer.choices[0].text == GREEDY[: GREEDY.index(GREEDY[5])]
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("streamed", [False, True])
def test_n_with_a_seed_is_reproducible(client, streamed):
    def texts(**options):
        answer = complete(client, n=4, seed=7, temperature=1.2, stream=streamed, **options)
        found = [""] * 4
        for one in answer if streamed else [answer]:
            for choice in one.choices:
                found[choice.index] += choice.text
        return found

    first = texts()
    assert texts() == first and len(set(first)) > 1
    assert [len(text) for text in texts(max_tokens=5)] == [5] * 4


def test_logprobs_of_completions(client):
    told = complete(client, logprobs=3).choices[0].logprobs
    assert "".join(told.tokens) == GREEDY[:32]
    assert told.text_offset == list(range(32))
    for token, logprob, top in zip(told.tokens, told.token_logprobs, told.top_logprobs):
        assert len(top) == 3 and top[token] == logprob == max(top.values()) <= 0


@pytest.mark.parametrize("streamed", [False, True])
def test_logprobs_of_chats(client, streamed):
    answer = chat(client, logprobs=True, top_logprobs=2, stream=streamed)
    answers = list(answer) if streamed else [answer]
    told = [entry for one in answers for entry in one.choices[0].logprobs.content]
    assert "".join(entry.token for entry in told) == GREEDY[:32]
    assert all(entry.top_logprobs[0].logprob == entry.logprob for entry in told)
    assert bytes(told[0].bytes) == GREEDY[:1].encode()


def test_tools_are_for_the_template(client):
    tools = [{"type": "function", "function": {"name": "find"}}]
    plain = chat(client).usage.prompt_tokens
    assert chat(client, tools=tools).usage.prompt_tokens > plain


def test_a_session_is_pinned(client):
    headers = {"Coppice-Session": "agent", "Coppice-Pin": "30"}
    assert complete(client, extra_headers=headers).choices[0].text == GREEDY[:32]
    assert complete(client, extra_headers=headers).choices[0].text == GREEDY[:32]
    with pytest.raises(openai.BadRequestError, match="Coppice-Pin"):
        complete(client, extra_headers={"Coppice-Pin": "x"})


def test_embeddings_are_refused_by_name(client):
    with pytest.raises(openai.BadRequestError, match="embeddings are not computed here"):
        client.embeddings.create(model="small", input="a")


def test_health_and_metrics(server, client):
    complete(client)
    assert server.get("/health")[0] == 200
    assert server.counter("coppice_generated_tokens_total") > 0
    assert server.counter("coppice_ready") == 1
