"""What transformers tests of generate for every model, with tokens equal to those of eager.

Written after GenerationTesterMixin of its tests/generation/test_utils.py (5.x), which neither its
wheel nor its sdist has. Beside each test stands the name of theirs. Its checks of outputs are kept:
their number, their shapes, what of them is given; to these come the values, held against eager.

Left out, and why:
- past_key_values_format, generate_with_static_cache, generate_with_quant_cache,
  generate_from_inputs_embeds_with_static_cache, generate_compile_model_forward_fullgraph,
  generate_compilation_all_outputs: of caches that have K and V in the process.
- generate_from_inputs_embeds, generate_from_random_inputs_embeds,
  generate_continue_from_inputs_embeds: KV is shared by ids. Refused: test_refusals.py.
- Attentions among the outputs: they never leave the daemon. Refused.
- guidance_scale: its second pass has no cache. Refused.
- greedy_generate_dict_outputs and the like with use_cache=False: no cache, no daemon. Refused.
- eager_matches_sdpa_generate, eager_matches_fa2_generate and their kin: of other attentions. All
  tests here are the same for this one.
- beam search in groups, with constraints, contrastive and DoLa decoding: gone from 5.x, as code
  to be fetched from a hub; so is custom_generate.
- Tests of single models with weights from a hub, of tokenizers, of logits processors and stopping
  criteria by themselves (these do not look at attention), of encoders with decoders.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tiny
import torch
import transformers as hf

import coppice
import coppice.hf

N_NEW = 5
NAMES = list(tiny.MAKERS)
SALTS = itertools.count(1000)
PROCESSORS: dict[str, Any] = dict(bad_words_ids=[[1, 0]], repetition_penalty=1.2)
SAMPLING: dict[str, Any] = dict(do_sample=True, top_k=10, top_p=0.7, temperature=0.7)
BEAMS: dict[str, Any] = dict(num_beams=2, length_penalty=2.0, early_stopping=False)
OUTPUTS: dict[str, Any] = dict(
    return_dict_in_generate=True,
    output_scores=True,
    output_logits=True,
    output_hidden_states=True,
)

each_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def model(name: str) -> Any:
    return tiny.model(name)


def generate(model: Any, ids: torch.Tensor | None, **options: Any) -> Any:
    torch.manual_seed(0)
    fixed = dict(do_sample=False, max_new_tokens=N_NEW, pad_token_id=0, remove_invalid_values=True)
    return model.generate(ids, **(fixed | OUTPUTS | options))


def check_close(name: str, want: Any, got: Any) -> None:
    """Tensors, and tuples of them to any depth."""
    if want is None or not isinstance(want, torch.Tensor):
        assert type(got) is type(want) and (want is None or len(got) == len(want)), name
        for pair in zip(want or (), got or ()):
            check_close(name, *pair)
        return
    assert got.shape == want.shape, name
    if want.is_floating_point():
        assert torch.allclose(got, want, rtol=1e-3, atol=2e-3), name
    else:
        assert torch.equal(got, want), name


def check_outputs(want: Any, got: Any) -> None:
    assert type(got) is type(want)
    assert set(got) == set(want)
    for name in want:
        if name != "past_key_values":
            check_close(name, want[name], got[name])


def check_both(
    connection: coppice.Connection, model: Any, ids: torch.Tensor, **options: Any
) -> tuple[Any, Any]:
    """Outputs of eager and of coppice, whose cache begins with nothing."""
    want = generate(model, ids, **options)
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(ids, options.get("attention_mask")) as cache:
            got = generate(model, ids, past_key_values=cache, **options)
            assert got.past_key_values is cache
            assert cache.get_seq_length() == want.past_key_values.get_seq_length()
    check_outputs(want, got)
    return want, got


def prompt(n_columns: int = 14) -> torch.Tensor:
    return tiny.draw(2, n_columns, seed=70)


@each_model
def test_greedy(connection: coppice.Connection, model: Any) -> None:
    """greedy_generate, greedy_generate_dict_outputs_use_cache"""
    _, got = check_both(connection, model, prompt(), **PROCESSORS)
    assert got.sequences.shape == (2, 14 + N_NEW)
    assert len(got.scores) == len(got.logits) == len(got.hidden_states) == N_NEW
    assert [len(states) for states in got.hidden_states] == [3 + 1] * N_NEW
    assert [states[0].shape[1] for states in got.hidden_states] == [14] + [1] * (N_NEW - 1)


@each_model
@pytest.mark.parametrize("n", [1, 2])
def test_sampling(connection: coppice.Connection, model: Any, n: int) -> None:
    """sample_generate, sample_generate_dict_output"""
    options = PROCESSORS | SAMPLING
    _, got = check_both(connection, model, prompt(), num_return_sequences=n, **options)
    assert got.sequences.shape == (2 * n, 14 + N_NEW)


@each_model
@pytest.mark.parametrize("n", [1, 2])
def test_beams(connection: coppice.Connection, model: Any, n: int) -> None:
    """beam_search_generate, beam_search_generate_dict_output and _dict_outputs_use_cache"""
    options = PROCESSORS | BEAMS
    _, got = check_both(connection, model, prompt(), num_return_sequences=n, **options)
    assert got.beam_indices.shape == (2 * n, N_NEW) and got.sequences_scores.shape == (2 * n,)


@each_model
def test_sampled_beams(connection: coppice.Connection, model: Any) -> None:
    """beam_sample_generate, beam_sample_generate_dict_output"""
    check_both(connection, model, prompt(), **PROCESSORS, **SAMPLING, **BEAMS)


@each_model
@pytest.mark.parametrize("kind", ["random", "same"])
@pytest.mark.parametrize("mode", [{}, SAMPLING], ids=["greedy", "sampled"])
def test_an_assistant(
    connection: coppice.Connection, model: Any, name: str, kind: str, mode: dict[str, Any]
) -> None:
    """assisted_decoding_matches_greedy_search (random, same), assisted_decoding_sample"""
    assistant = tiny.MAKERS[name]() if kind == "same" else tiny.llama(seed=5)
    assistant.generation_config.num_assistant_tokens = 2
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    ids = prompt()[:1]
    want, _ = check_both(connection, model, ids, assistant_model=assistant, **mode)
    if not mode:
        alone = generate(model, ids)
        assert want.sequences.tolist() == alone.sequences.tolist()


@each_model
def test_prompt_lookup(connection: coppice.Connection, model: Any) -> None:
    """prompt_lookup_decoding_matches_greedy_search"""
    ids = tiny.draw(1, 4, seed=71).repeat(1, 4)
    options = dict(prompt_lookup_num_tokens=2, max_new_tokens=10)
    want, _ = check_both(connection, model, ids, **options)
    alone = generate(model, ids, max_new_tokens=10)
    assert want.sequences.tolist() == alone.sequences.tolist()


@each_model
def test_prompt_lookup_stops(connection: coppice.Connection, model: Any) -> None:
    """prompt_lookup_decoding_stops_at_eos"""
    ids = tiny.draw(1, 4, seed=71).repeat(1, 4)
    third = int(generate(model, ids).sequences[0, 16 + 2])
    options = dict(prompt_lookup_num_tokens=4, max_new_tokens=10, eos_token_id=third)
    _, got = check_both(connection, model, ids, **options)
    assert got.sequences[0, -1] == third and got.sequences.shape[1] <= 16 + 3


@each_model
def test_padding_changes_nothing(connection: coppice.Connection, model: Any) -> None:
    """left_padding_compatibility: by the last logits, and then by tokens"""
    ids, n_pads = prompt(), 9
    padded = torch.cat([torch.zeros(2, n_pads, dtype=torch.int64), ids], 1)
    mask = torch.cat([torch.zeros(2, n_pads, dtype=torch.int64), torch.ones_like(ids)], 1)
    with torch.no_grad(), coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(ids) as cache:
            want = generate(model, ids, past_key_values=cache)
        with shared.cache(padded, mask, salt=next(SALTS)) as cache:
            got = generate(model, padded, attention_mask=mask, past_key_values=cache)
    assert got.sequences[:, n_pads:].tolist() == want.sequences.tolist()
    check_close("logits", want.logits, got.logits)


@each_model
def test_rows_of_other_lengths(connection: coppice.Connection, model: Any) -> None:
    """The same in one batch, as eager_matches_sdpa_generate has it."""
    ids, mask = prompt(), torch.ones(2, 14, dtype=torch.int64)
    mask[0, :6] = 0
    ids[0, :6] = 0
    for mode in ({}, BEAMS):
        check_both_of_real_rows(connection, model, ids, mask, mode)


def check_both_of_real_rows(
    connection: coppice.Connection, model: Any, ids: Any, mask: Any, mode: dict[str, Any]
) -> None:
    """What goes on in padding differs, and is of no use."""
    given = dict(output_hidden_states=False, attention_mask=mask, **mode)
    check_both(connection, model, ids, **given)


@each_model
def test_without_input_ids(connection: coppice.Connection, model: Any) -> None:
    """generate_without_input_ids: from the config's bos_token_id"""
    want = generate(model, None)
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(torch.tensor([[model.config.bos_token_id]])) as cache:
            got = generate(model, None, past_key_values=cache)
    check_outputs(want, got)
    assert got.sequences.shape == (1, 1 + N_NEW)


@each_model
@pytest.mark.parametrize("n", [1, 2])
def test_going_on_from_a_cache(connection: coppice.Connection, model: Any, n: int) -> None:
    """generate_continue_from_past_key_values: in two calls what one gives, also of several rows"""
    options = PROCESSORS | (SAMPLING | dict(num_return_sequences=2) if n == 2 else {})
    del options["repetition_penalty"]
    ids = prompt()[:1]
    whole = generate(model, ids, max_new_tokens=4, **(options if n == 1 else {}))
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(ids) as cache:
            first = generate(model, ids, max_new_tokens=3, past_key_values=cache)
            mask = torch.ones_like(first.sequences)
            more = dict(max_new_tokens=1, attention_mask=mask, past_key_values=cache)
            last = generate(model, first.sequences, **more, **options)
            assert last.past_key_values is cache
            assert cache.n_cached == [14 + 3] * n
    if n == 1:
        assert last.sequences.tolist() == whole.sequences.tolist()
    else:
        assert last.sequences[:, :-1].tolist() == [whole.sequences[0, :-1].tolist()] * 2


@each_model
@pytest.mark.parametrize("mode", [{}, BEAMS], ids=["greedy", "beams"])
def test_logits_to_keep(connection: coppice.Connection, model: Any, mode: dict[str, Any]) -> None:
    """generate_methods_with_logits_to_keep: all of them, or the last"""
    _, all_kept = check_both(connection, model, prompt(), logits_to_keep=0, **mode)
    _, last_kept = check_both(connection, model, prompt(), **mode)
    assert all_kept.sequences.tolist() == last_kept.sequences.tolist()


@each_model
def test_position_ids(connection: coppice.Connection, model: Any) -> None:
    """generate_with_and_without_position_ids"""
    places = torch.arange(14).expand(2, 14)
    _, given = check_both(connection, model, prompt(), position_ids=places)
    _, made = check_both(connection, model, prompt())
    assert given.sequences.tolist() == made.sequences.tolist()


@each_model
@pytest.mark.parametrize("mode", [{}, BEAMS], ids=["greedy", "beams"])
def test_a_row_that_ends_before_the_other(
    connection: coppice.Connection, model: Any, mode: dict[str, Any]
) -> None:
    """eos_token_id, as in their tests of stopping: what follows in that row is padding."""
    alone = generate(model, prompt())
    eos = int(alone.sequences[0, 14 + 1])
    _, got = check_both(connection, model, prompt(), eos_token_id=eos, **mode)
    assert mode or (got.sequences[0, 14 + 2 :] == 0).all()


class Heard(hf.generation.BaseStreamer):
    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.pieces.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended = True


@each_model
def test_a_streamer(connection: coppice.Connection, model: Any) -> None:
    """text_streamer_matches_non_streaming, without the text"""
    ids = prompt()[:1]
    with coppice.hf.attach(model, connection, salt=next(SALTS)) as shared:
        with shared.cache(ids) as cache:
            heard = Heard()
            got = generate(model, ids, past_key_values=cache, streamer=heard)
    assert heard.ended and len(heard.pieces) == 1 + N_NEW
    assert [sum(heard.pieces, [])] == got.sequences.tolist()


def test_attentions_are_not_given(connection: coppice.Connection) -> None:
    model = tiny.model("llama")
    with coppice.hf.attach(model, connection) as shared, shared.cache(prompt()) as cache:
        with pytest.raises(coppice.Unsupported, match="output_attentions"):
            generate(model, prompt(), past_key_values=cache, output_attentions=True)


def test_a_guide(connection: coppice.Connection) -> None:
    """guidance_scale asks the model a second time without the cache. That is refused."""
    model, ids = tiny.model("llama"), prompt()[:1]
    with coppice.hf.attach(model, connection) as shared, shared.cache(ids) as cache:
        with pytest.raises(coppice.Invalid, match="past_key_values"):
            generate(model, ids, past_key_values=cache, guidance_scale=2.0)
