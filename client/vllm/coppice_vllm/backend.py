"""vLLM's attention backend: Q, K and V go to the daemon, layer by layer, and O comes back.

vLLM's own KV cache is never written or read. A batch's metadata has the first block of each row:
blocks are not shared while vLLM caches no prefixes, so the connector knows the request by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
)

from . import CONNECTOR

if TYPE_CHECKING:
    from .engine import Engine

KV_CACHE_DTYPES = ["auto"]


@dataclass
class Metadata(AttentionMetadata):
    """rows: the first block of each, and its new tokens. engine: of a step whose tokens the
    connector has submitted; None in runs of no requests."""

    n_tokens: int
    rows: list[tuple[int, int]]
    engine: Engine | None = None


class MetadataBuilder(AttentionMetadataBuilder[Metadata]):
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        transfer = vllm_config.kv_transfer_config
        if transfer is None or transfer.kv_connector != CONNECTOR:
            raise ValueError(
                "coppice: the attention backend goes with its connector: --kv-transfer-config "
                f'\'{{"kv_connector": "{CONNECTOR}", "kv_role": "kv_both"}}\''
            )

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> Metadata:
        common = common_attn_metadata
        ends = common.query_start_loc_cpu[: common.num_reqs + 1]
        blocks = common.block_table_tensor[: common.num_reqs, 0]
        rows = [(block, n) for block, n in zip(blocks.tolist(), ends.diff().tolist()) if n]
        return Metadata(n_tokens=common.num_actual_tokens, rows=rows)


class Impl(AttentionImpl[Metadata]):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        **others: Any,
    ) -> None:
        refused = {
            "slopes of ALiBi": alibi_slopes,
            "sliding windows": sliding_window,
            "capped scores": logits_soft_cap,
            "layers that share K and V": kv_sharing_target_layer_name,
            f"attention of the kind {attn_type}": attn_type != AttentionType.DECODER,
            f"KV of the kind {kv_cache_dtype}": kv_cache_dtype not in KV_CACHE_DTYPES,
        }
        refused |= {name: given is not None for name, given in others.items()}
        for what, given in refused.items():
            if given:
                raise ValueError(f"coppice: the model has {what}, which the daemon has not")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Metadata,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("coppice: outputs are not quantized")
        if attn_metadata is None or attn_metadata.engine is None:
            return output.zero_()
        n = attn_metadata.n_tokens
        number = extract_layer_index(layer.layer_name)
        attn_metadata.engine.attend(number, query[:n], key[:n], value[:n], output[:n])
        return output


class CoppiceBackend(AttentionBackend):
    supported_dtypes: ClassVar[list[torch.dtype]] = [
        torch.float16,
        torch.bfloat16,
        torch.float32,
    ]
    supported_kv_cache_dtypes: ClassVar[list[Any]] = KV_CACHE_DTYPES

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        return Impl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size % 16 == 0 and head_size <= 256

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """Of memory that vLLM has, and that stays as it is."""
        return num_blocks, 2, block_size, num_kv_heads, head_size
