"""What transformers asks for when it makes masks: each model says there what its layers may see.

The daemon's attention is causal, over all tokens of a row but its padding (_fed.py looks at that).
Where a mask would say the same, none is made. Any other is a stand-in that bears a sentence: models
make masks for layers that they may not have, so it is refused where a layer comes with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import causal_mask_function, sdpa_mask

from ._errors import unsupported

WINDOW_KEYS = ("sliding_window", "attention_chunk_size")


class Columns(int):
    """Of K in a pass. transformers gives the mask what the cache has said of itself."""

    coppice_forward: Any = None


class Window(NamedTuple):
    """The tokens that a layer sees of the latest ones, by a key of the config."""

    key: str
    n_tokens: int

    def sentence(self, n_tokens: int) -> str:
        return (
            f"{self.key} of the config is {self.n_tokens}, and a row has {n_tokens} tokens: "
            "the daemon has no windows, so a text may be no longer than one"
        )


def window_by(config: Any, n_tokens: int) -> Window:
    """Of this size, by the name that it has in the config's file."""
    names = getattr(config, "attribute_map", None) or {}
    found = [key for key in WINDOW_KEYS if getattr(config, key, None) == n_tokens]
    key = found[0] if found else WINDOW_KEYS[0]
    return Window(names.get(key, key), n_tokens)


def window_of_cache(config: Any) -> Window | None:
    """The narrowest that transformers' own cache has: some models have windows by that alone."""
    try:
        layers = DynamicCache(config=config).layers
    except Exception:  # a config of which none can be made: the model is run with others
        return None
    sizes = [layer.sliding_window for layer in layers if layer.is_sliding]
    narrowest = min((size for size in sizes if size and size > 0), default=None)
    return window_by(config, narrowest) if narrowest else None


def mask(
    batch_size: int,
    kv_length: int,
    mask_function: Any = causal_mask_function,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    config: Any = None,
    device: Any = "cpu",
    **asked: Any,
) -> torch.Tensor | None:
    """What transformers calls for a mask of attn_implementation="coppice".

    local_size with allow_is_causal_skip: a window or chunks, and nothing else, which are causal for
    a text no longer than that. Other functions are held against a causal one, number by number: on
    a GPU that is waited for, once in a pass of a model that has marked tokens, as those of images.
    """
    if mask_function is causal_mask_function:
        return None
    forward = getattr(kv_length, "coppice_forward", None)
    if local_size is not None and allow_is_causal_skip:
        if forward.is_within(local_size) if forward else kv_length <= local_size:
            return None
        n_tokens = forward.n_tokens if forward else kv_length
        sentence = window_by(config, local_size).sentence(n_tokens)
    else:
        sizes = dict(batch_size=batch_size, kv_length=kv_length, device=device)
        if is_causal(mask_function, {**asked, **sizes}):
            return None
        sentence = more_than_causal(mask_function, config)
    stand_in = torch.empty((), dtype=torch.bool, device=device)
    stand_in = stand_in.expand(batch_size, 1, 1, kv_length)
    stand_in.coppice_sentence = sentence
    return stand_in


def is_causal(mask_function: Any, asked: dict[str, Any]) -> bool:
    """For tokens that are not padding."""
    fixed = dict(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    got, want = (
        sdpa_mask(**{**asked, **fixed}, mask_function=function)
        for function in (mask_function, causal_mask_function)
    )
    return bool((got == want).all())


def more_than_causal(mask_function: Any, config: Any) -> str:
    if getattr(config, "is_causal", True) is False:
        return "is_causal of the config is False: the daemon's attention is causal"
    kind = getattr(config, "model_type", "this model")
    name = getattr(mask_function, "__name__", "a function of its own")
    return (
        f"{kind} masks by {name} what a causal mask does not, or shows what that hides: "
        "the daemon's attention is causal, so give it texts alone, one a row"
    )


def check_mask(mask: Any, module: Any) -> None:
    """A layer's. Padding is none: it is left out before."""
    if mask is None:
        return
    sentence = getattr(mask, "coppice_sentence", None)
    raise unsupported(
        sentence
        or f"attention_mask: {type(module).__name__} comes with one of its own making, and the "
        "daemon's attention is causal and has no other: use the model without coppice.hf.attach"
    )
