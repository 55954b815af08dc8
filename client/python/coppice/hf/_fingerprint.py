"""By what processes know that they have the same model: a number of its weights and its config.

Each 8 bytes of a tensor are multiplied by an odd number of their place and summed up, in integers,
so that the sum is the same on every device, and another if a single word is.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

CHUNK_WORDS = 1 << 20
# Keys of a config that change neither K nor V.
IGNORED_KEYS = {"dtype", "torch_dtype", "transformers_version", "use_cache", "architectures"}


def factors(n: int, device: torch.device) -> torch.Tensor:
    """Odd, and far from each other: the mixer of SplitMix64 over the first n places of a chunk."""
    x = torch.arange(n, dtype=torch.int64, device=device) * -0x61C8864680B583EB
    x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
    return (x ^ (x >> 31)) | 1


def words(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes as integers of 8, with zeros at the end."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if n_over := data.numel() % 8:
        data = torch.nn.functional.pad(data, (0, 8 - n_over))
    return data.view(torch.int64)


def sums(tensor: torch.Tensor, by: torch.Tensor) -> bytes:
    chunks = [(chunk * by[: chunk.numel()]).sum() for chunk in words(tensor).split(CHUNK_WORDS)]
    return repr(torch.stack(chunks).tolist()).encode()


def config_facts(config: Any) -> bytes:
    facts = config.to_dict()
    kept = {k: v for k, v in facts.items() if k not in IGNORED_KEYS and not k.startswith("_")}
    return json.dumps(kept, sort_keys=True, default=str).encode()


def fingerprint(model: Any) -> int:
    """Reads all weights once."""
    digest = hashlib.blake2b(config_facts(model.config), digest_size=8)
    tensors = model.base_model.state_dict()
    n_words = max((-(-tensor.nbytes // 8) for tensor in tensors.values()), default=0)
    by: dict[torch.device, torch.Tensor] = {}
    for name, tensor in sorted(tensors.items()):
        if tensor.device not in by:
            by[tensor.device] = factors(min(n_words, CHUNK_WORDS), tensor.device)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(sums(tensor, by[tensor.device]) if tensor.numel() else b"")
    return int.from_bytes(digest.digest(), "little")
