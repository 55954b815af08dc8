"""What of vLLM's settings goes with the daemon, and what two engines must have in common to share.

Refused is whatever would put KV where the daemon does not see it, or tokens where the connector
does not: the sentence names the option.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

import torch

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


class Shape(NamedTuple):
    """Of the KV of all layers."""

    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    scale: float


def complaints(config: Any) -> list[str]:
    """Options that cannot be had."""
    parallel, cache, model = config.parallel_config, config.cache_config, config.model_config
    found = {
        "--no-enable-prefix-caching is wanted: the daemon has the prefixes": (
            cache.enable_prefix_caching
        ),
        "--no-async-scheduling is wanted: the connector must know a step's tokens": (
            config.scheduler_config.async_scheduling
        ),
        "one process for scheduler and worker is wanted: no tensor, pipeline or data parallelism, "
        "--distributed-executor-backend uni": (
            parallel.world_size_across_dp != 1
            or parallel.distributed_executor_backend not in (None, "uni")
        ),
        "there is no speculative decoding": config.speculative_config is not None,
        "there is no LoRA: adapters change K and V": config.lora_config is not None,
        "there are no models of several modalities: KV is shared by token ids": (
            model.is_multimodal_model
        ),
        "there are no prompts of embeddings: KV is shared by token ids": (
            model.enable_prompt_embeds
        ),
    }
    return [sentence for sentence, is_so in found.items() if is_so]


def check_config(config: Any) -> None:
    if sentences := complaints(config):
        raise ValueError("coppice: " + "; ".join(sentences))


def shape_of(layers: list[Any], dtype: torch.dtype) -> Shape:
    """Of vLLM's layers of attention, in order. Raises ValueError where they differ."""
    shapes = {
        Shape(len(layers), x.num_heads, x.num_kv_heads, x.head_size, dtype, x.impl.scale)
        for x in layers
    }
    if len(shapes) != 1:
        raise ValueError(f"coppice: layers have {len(shapes)} shapes of KV, the daemon one")
    return shapes.pop()


def weights_hash(config: Any) -> int:
    """By what engines tell that they have the same weights: files, as they stand in a folder, and
    how they are read; or the number of kv_connector_extra_config."""
    given = config.kv_transfer_config.get_from_extra_config("weights_hash", None)
    if given is not None:
        return int(given)
    model = config.model_config
    if not os.path.isdir(model.model) or config.load_config.load_format == "dummy":
        raise ValueError(
            "coppice: the model is no folder, so that engines cannot tell whether they have the "
            'same weights: give kv_connector_extra_config {"weights_hash": NUMBER}'
        )
    facts = [model.quantization, str(model.dtype), str(model.hf_overrides), files_of(model.model)]
    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def files_of(folder: str) -> list[tuple[str, int, int, int]]:
    """Of its files: name, inode, size and time of the last change."""
    found = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file():
            stat = os.stat(entry.path)
            found.append((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


def salt_of(cache_salt: str | None) -> int:
    """A request's cache_salt, as the daemon has it. 0: none was given."""
    if not cache_salt:
        return 0
    digest = hashlib.blake2b(cache_salt.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1
