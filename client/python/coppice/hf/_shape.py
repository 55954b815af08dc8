"""What KV a model of transformers has, and which models have attention that the daemon lacks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ._errors import unsupported
from ._mask import Window, window_of_cache

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
LAYER_TYPES = {"full_attention", "sliding_attention"}
# Keys of a config that stand for attention of another kind, unless they are None, False or 0.
REFUSED_KEYS = {
    "is_encoder_decoder": "there is cross-attention",
    "attn_logit_softcapping": "scores are capped",
    "attention_chunk_size": "attention is in chunks",
    "kv_lora_rank": "K and V are compressed",
    "num_kv_shared_layers": "layers share K and V",
    "kv_sharing_modes": "layers share K and V",
    "use_bidirectional_attention": "attention is not causal",
}
# Kinds of models whose attention is another one, which no key of their own says.
REFUSED_TYPES = {
    "diffllama": "attention is the difference of two",
    "jetmoe": "keys are changed behind the cache",
    "opt": "queries are scaled before attention is called",
}


class Shape(NamedTuple):
    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    scale: float
    window: Window | None  # the narrowest of its layers, as the config has it


def check_config(config: Any) -> None:
    kind = getattr(config, "model_type", "")
    if reason := REFUSED_TYPES.get(kind):
        raise unsupported(f"model_type of the config is {kind}: {reason}, which cannot be had")
    for key, reason in REFUSED_KEYS.items():
        if value := getattr(config, key, None):
            raise unsupported(f"{key} of the config is {value}: {reason}, which the daemon has not")
    for layer in getattr(config, "layer_types", None) or ():
        if layer not in LAYER_TYPES:
            raise unsupported(f"layer_types of the config has {layer}, which the daemon has not")


def attention_modules(model: Any, n_layers: int) -> list[Any]:
    """One a layer."""
    found = [m for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, "scaling")]
    if [module.layer_idx for module in found] != list(range(n_layers)):
        name = type(model).__name__
        raise unsupported(f"{name} has {len(found)} modules of attention for {n_layers} layers")
    return found


def scale_of(modules: list[Any]) -> float:
    """Of all layers: a model of the daemon has one."""
    scales = {float(module.scaling) for module in modules}
    if len(scales) != 1:
        raise unsupported(f"layers scale their scores by {sorted(scales)}: the daemon by one")
    return scales.pop()


def check_causal(model: Any, modules: list[Any]) -> None:
    if all(getattr(module, "is_causal", True) for module in modules):
        return
    is_decoder = getattr(model.config, "is_decoder", True)
    remedy = "" if is_decoder else ": is_decoder of its config is False"
    raise unsupported(f"attention of {type(model).__name__} is not causal{remedy}")


def shape_of(model: Any) -> Shape:
    """Raises Unsupported; the sentence names the key of the config."""
    check_config(model.config)
    config = model.config.get_text_config(decoder=True)
    check_config(config)
    if not model._supports_attention_backend:
        raise unsupported(f"{type(model).__name__} takes no functions of attention")
    if model.dtype not in DTYPES:
        raise unsupported(f"the model is of {model.dtype}: float32, float16 or bfloat16 can be had")
    modules = attention_modules(model, config.num_hidden_layers)
    check_causal(model, modules)
    n_q_heads = config.num_attention_heads
    return Shape(
        n_layers=config.num_hidden_layers,
        n_q_heads=n_q_heads,
        n_kv_heads=getattr(config, "num_key_value_heads", None) or n_q_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // n_q_heads,
        dtype=model.dtype,
        scale=scale_of(modules),
        window=window_of_cache(config),
    )
