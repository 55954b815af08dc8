"""vLLM's KV connector: how much of a prompt is at the daemon, and which request a row is.

Nothing is loaded into vLLM's blocks, and nothing saved from them: the backend computes attention
where the KV is. On the scheduler's side a sequence is opened for a request when vLLM asks what is
cached, so what was found stays; and while others compute some of it, vLLM asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from .backend import Impl
from .config import check_config
from .engine import Span, end_engine, engine_of, make_engine


@dataclass
class StepMetadata(KVConnectorMetadata):
    """What a step computes, by the first block of each request."""

    spans: dict[int, Span] = field(default_factory=dict)


def layers_of(config: Any) -> list[Any]:
    """vLLM's layers of attention in this process, in order."""
    layers = list(config.compilation_config.static_forward_context.values())
    for layer in layers:
        if not isinstance(getattr(layer, "impl", None), Impl):
            raise ValueError(
                "coppice: a layer has attention of another kind: --attention-backend CUSTOM, and a "
                "model whose layers are all of full attention"
            )
    return layers


class CoppiceConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        check_config(vllm_config)
        self._config = vllm_config
        self._requests: dict[str, Any] = {}
        self._first_blocks: dict[str, int] = {}
        if role == KVConnectorRole.WORKER:
            make_engine(vllm_config, layers_of(vllm_config))

    # ---- the scheduler's side ------------------------------------------------------------------

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        assert num_computed_tokens == 0, "vLLM caches no prefixes"
        return engine_of(self._config).match(request), False

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        self._requests[request.request_id] = request
        self._first_blocks[request.request_id] = blocks.get_block_ids()[0][0]

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        starts = {x.req_id: x.num_computed_tokens for x in scheduler_output.scheduled_new_reqs}
        going_on = scheduler_output.scheduled_cached_reqs
        starts.update(zip(going_on.req_ids, going_on.num_computed_tokens))
        meta = StepMetadata()
        for request_id, n in scheduler_output.num_scheduled_tokens.items():
            start = starts[request_id]
            tokens = tuple(self._requests[request_id].all_token_ids[start : start + n])
            assert len(tokens) == n, "a step has tokens that are not known yet"
            meta.spans[self._first_blocks[request_id]] = Span(request_id, start, tokens)
        return meta

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._requests.pop(request.request_id, None)
        self._first_blocks.pop(request.request_id, None)
        engine_of(self._config).close_request(request.request_id)
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, block_ids[0] if block_ids else [])

    # ---- the worker's side ---------------------------------------------------------------------

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """In front of a forward pass: its tokens go to the daemon."""
        by_layer = forward_context.attn_metadata
        if not by_layer:
            return
        metadata = next(iter(by_layer.values()))
        spans = self._get_connector_metadata().spans
        said = {block: len(span.tokens) for block, span in spans.items()}
        if dict(metadata.rows) != said or len(metadata.rows) != len(said):
            raise RuntimeError("coppice: a batch has other requests than the scheduler has said")
        metadata.engine = engine_of(self._config)
        metadata.engine.begin([spans[block] for block, _ in metadata.rows])

    def wait_for_layer_load(self, layer_name: str) -> None:
        """There is nothing to load."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """A step has saved it."""

    def wait_for_save(self) -> None:
        """Raises how a step failed, before a token is made of what it left."""
        engine_of(self._config).check()

    def shutdown(self) -> None:
        end_engine(self._config)
