"""generate of transformers, with tokens equal to those of its own attention."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch

import coppice
import coppice.hf

NAMES = list(tiny.MAKERS)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": dict(do_sample=True, temperature=2.0, top_k=20),
    "returns": dict(do_sample=True, temperature=2.0, num_return_sequences=3),
    "beams": dict(num_beams=4),
    "beams_returned": dict(num_beams=4, num_return_sequences=2, length_penalty=0.5),
    "prompt_lookup": dict(prompt_lookup_num_tokens=4),
}


def generate(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    torch.manual_seed(7)
    options = dict(do_sample=False, max_new_tokens=12, pad_token_id=0) | options
    tokens: torch.Tensor = model.generate(ids, **options)
    return tokens


def check_same(
    connection: coppice.Connection, model: Any, ids: torch.Tensor, **options: Any
) -> list[int]:
    """How many tokens of each row have KV at the end."""
    want = generate(model, ids, **options)
    with coppice.hf.attach(model, connection) as shared:
        with shared.cache(ids, options.get("attention_mask")) as cache:
            got = generate(model, ids, past_key_values=cache, **options)
            assert got.tolist() == want.tolist()
            return cache.n_cached


def repeating(n_columns: int, seed: int = 3) -> torch.Tensor:
    """Ids in which a look-up finds something."""
    return tiny.draw(1, 8, seed).repeat(1, n_columns // 8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_eager(
    connection: coppice.Connection, name: str, mode: str
) -> None:
    check_same(connection, tiny.model(name), repeating(32), **MODES[mode])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_with_padding_on_the_left(connection: coppice.Connection, name: str) -> None:
    ids = tiny.draw(3, 20, seed=5)
    mask = torch.ones_like(ids)
    mask[0, :7] = mask[2, :1] = 0
    ids[mask == 0] = 0
    for mode in ("greedy", "beams"):
        options = dict(attention_mask=mask, **MODES[mode])
        check_same(connection, tiny.model(name), ids, **options)


def test_assisted_decoding(connection: coppice.Connection) -> None:
    assistant = tiny.llama(seed=1, num_hidden_layers=2)
    for name in ("llama", "qwen3"):
        model = tiny.model(name)
        check_same(connection, model, tiny.draw(1, 20, seed=6), assistant_model=assistant)


def test_an_assistant_that_is_attached(connection: coppice.Connection) -> None:
    """Its cache is made by transformers. It is refused by a sentence."""
    model, assistant = tiny.model("llama"), tiny.llama(seed=2)
    ids = tiny.draw(1, 12)
    with coppice.hf.attach(assistant, connection), coppice.hf.attach(model, connection) as shared:
        with shared.cache(ids) as cache, pytest.raises(coppice.Invalid, match="past_key_values"):
            generate(model, ids, past_key_values=cache, assistant_model=assistant)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(connection: coppice.Connection, dtype: torch.dtype) -> None:
    """Logits within what rounding of O and of what follows makes of values of this size."""
    model = tiny.llama(seed=4).to(dtype)
    ids = tiny.draw(2, 24)
    with torch.no_grad():
        want = model(ids).logits[:, -1].float()
        with coppice.hf.attach(model, connection) as shared, shared.cache(ids) as cache:
            got = model(ids, past_key_values=cache).logits[:, -1].float()
    assert (got - want).norm() < (0.02 if dtype is torch.float16 else 0.1) * want.norm()


class Fed:
    """How many columns each pass of a model was given."""

    def __init__(self, model: Any) -> None:
        self.counts: list[int] = []
        self.hook = model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, model: Any, args: Any, kwargs: Any) -> None:
        self.counts.append(kwargs["input_ids"].shape[1])


def test_what_is_cached_is_not_fed(connection: coppice.Connection) -> None:
    model, document = tiny.llama(seed=11), tiny.draw(1, 50, seed=8)
    asked = [torch.cat([document, tiny.draw(1, 10, seed=20 + i)], 1) for i in range(3)]
    want = [generate(model, ids) for ids in asked]
    fed = Fed(model)
    with coppice.hf.attach(model, connection) as shared:
        for i, ids in enumerate(asked):
            before = connection.stats()
            with shared.cache(ids) as cache:
                assert cache.n_cached == [50 if i else 0]
                assert generate(model, ids, past_key_values=cache).tolist() == want[i].tolist()
                assert cache.n_cached == [60 + 11]
            after = connection.stats()
            assert after.tokens_matched - before.tokens_matched == (50 if i else 0)
            assert after.tokens_computed - before.tokens_computed == (71 - 50 if i else 71)
    fed.hook.remove()
    assert fed.counts == [60, *[1] * 11, *[10, *[1] * 11] * 2]


def test_beams_share_their_prompt(connection: coppice.Connection) -> None:
    """Of four beams the prompt is computed once, though transformers feeds it four times."""
    model, ids = tiny.llama(seed=12), tiny.draw(1, 40)
    before = connection.stats().tokens_computed
    check_same(connection, model, ids, num_beams=4)
    assert connection.stats().tokens_computed - before <= 40 + 4 * 11


def test_rows_are_cached_each_for_itself(connection: coppice.Connection) -> None:
    """Rows of other lengths begin where the least of them does; what is there is not computed."""
    model = tiny.llama(seed=13)
    ids, mask = tiny.draw(2, 30), torch.ones(2, 30, dtype=torch.int64)
    mask[1, :6] = 0
    check_same(connection, model, ids[:1, :20])
    before = connection.stats().tokens_computed
    check_same(connection, model, ids, attention_mask=mask)
    check_same(connection, model, ids, attention_mask=mask)
    # the first time 10 and 24 of the prompts, the second time 1 and 1; then 11 tokens a row
    assert connection.stats().tokens_computed - before <= 10 + 24 + 2 + 4 * 11 + 8


def test_a_conversation_in_one_cache(connection: coppice.Connection) -> None:
    model, ids = tiny.model("qwen3"), tiny.draw(1, 16)
    with coppice.hf.attach(model, connection) as shared, shared.cache(ids) as cache:
        for turn in range(3):
            model.set_attn_implementation("eager")
            want = generate(model, ids)
            model.set_attn_implementation("coppice")
            assert generate(model, ids, past_key_values=cache).tolist() == want.tolist()
            ids = torch.cat([want, tiny.draw(1, 5, seed=30 + turn)], 1)


def test_a_prompt_in_chunks(connection: coppice.Connection) -> None:
    model, ids = tiny.model("llama"), tiny.draw(2, 33, seed=40)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    check_same(connection, model, ids, attention_mask=mask, prefill_chunk_size=8)


def test_crop_reset_and_selection(connection: coppice.Connection) -> None:
    model, ids = tiny.model("mistral"), tiny.draw(2, 14, seed=41)
    with torch.no_grad():
        want = model(ids[[1, 0, 1]]).logits[:, -1]
        with coppice.hf.attach(model, connection) as shared, shared.cache(ids) as cache:
            model(ids, past_key_values=cache)
            cache.crop(-5)
            assert cache.get_seq_length() == 9 and cache.n_cached == [9, 9]
            cache.batch_select_indices(torch.tensor([1, 0]))
            cache.batch_repeat_interleave(2)
            cache.reorder_cache(torch.tensor([0, 2, 1]))
            got = model(ids[[1, 0, 1]][:, 9:], past_key_values=cache).logits[:, -1]
            assert torch.allclose(got, want, rtol=1e-3, atol=1e-3)
            cache.reset()
            got = model(ids[[1, 0, 1]], past_key_values=cache).logits[:, -1]
            assert torch.allclose(got, want, rtol=1e-3, atol=1e-3)


def test_repetition_takes_no_more_memory(connection: coppice.Connection) -> None:
    model, ids = tiny.llama(seed=14), repeating(32)
    check_same(connection, model, ids, num_beams=4)
    used = connection.stats().pool_used_bytes
    for _ in range(2):
        check_same(connection, model, ids, num_beams=4)
        check_same(connection, model, ids, prompt_lookup_num_tokens=4)
    assert connection.stats().pool_used_bytes == used
