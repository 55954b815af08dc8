"""vLLM 0.24 with its KV at the daemon: what a user's processes share is read once.

An attention backend, CUSTOM, that leaves attention to the daemon, and a connector that tells vLLM
how much of a prompt is there, and the backend which request each row of a batch is. Both are
wanted: `--attention-backend CUSTOM --kv-transfer-config '{"kv_connector": "CoppiceConnector",
"kv_role": "kv_both"}'`. vLLM calls `register` by itself, in each of its processes.
"""

from __future__ import annotations

import os

CONNECTOR = "CoppiceConnector"


def register() -> None:
    """May be called again. With COPPICE_VLLM_CPU=1 vLLM's backend for CPUs is replaced too, as
    that is what vLLM takes on a CPU whatever it is told."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    path = "coppice_vllm.backend.CoppiceBackend"
    register_backend(AttentionBackendEnum.CUSTOM, path)
    if os.environ.get("COPPICE_VLLM_CPU") == "1":
        register_backend(AttentionBackendEnum.CPU_ATTN, path)
    try:
        KVConnectorFactory.register_connector(CONNECTOR, "coppice_vllm.connector", CONNECTOR)
    except ValueError:  # it is registered
        return
