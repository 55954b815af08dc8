"""Small models of transformers with random weights, large enough that tokens depend on context."""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers as hf

torch.set_num_threads(1)
N_VOCAB = 96
SIZES = dict(
    vocab_size=N_VOCAB,
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
WINDOWS = ["full_attention", "sliding_attention", "full_attention"]


def made(kind: Any, config: Any, seed: int = 1) -> Any:
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(6)
    model.set_attn_implementation("eager")
    return model


def llama(seed: int = 1, **keys: Any) -> Any:
    return made(hf.LlamaForCausalLM, hf.LlamaConfig(**{**SIZES, **keys}), seed)


def qwen3(**keys: Any) -> Any:
    return made(hf.Qwen3ForCausalLM, hf.Qwen3Config(**{**SIZES, **keys}))


def mistral(window: int | None = None, **keys: Any) -> Any:
    config = hf.MistralConfig(**{**SIZES, **keys}, sliding_window=window)
    return made(hf.MistralForCausalLM, config)


def gemma3(**keys: Any) -> Any:
    windows = dict(query_pre_attn_scalar=64, sliding_window=100, layer_types=WINDOWS)
    return made(hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**{**SIZES, **keys}, **windows))


def gpt_oss(**keys: Any) -> Any:
    windows = dict(sliding_window=100, layer_types=WINDOWS)
    config = hf.GptOssConfig(**{**SIZES, **keys}, **EXPERTS, **windows)
    model = made(hf.GptOssForCausalLM, config)
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, std=2.0)
    return model


MAKERS = dict(llama=llama, qwen3=qwen3, mistral=mistral, gemma3=gemma3, gpt_oss=gpt_oss)


@functools.cache
def model(name: str) -> Any:
    return MAKERS[name]()


def draw(n_rows: int, n_columns: int, seed: int = 3) -> torch.Tensor:
    by = torch.Generator().manual_seed(seed)
    return torch.randint(5, N_VOCAB, (n_rows, n_columns), generator=by)
