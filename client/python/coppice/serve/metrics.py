"""What /metrics tells; of all workers together, where there are several."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

import coppice

_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 30.0)

REQUESTS = Counter("coppice_requests", "Requests, by endpoint and status", ["endpoint", "status"])
HUNG_UP = Counter("coppice_hung_up", "Requests whose client was gone before their end")
PROMPT = Counter("coppice_prompt_tokens", "Tokens of prompts")
CACHED = Counter("coppice_cached_tokens", "Tokens of prompts that were there already")
GENERATED = Counter("coppice_generated_tokens", "Tokens that were given out")
FIRST = Histogram("coppice_first_token_seconds", "Until a request's first token", buckets=_SECONDS)
WHOLE = Histogram("coppice_request_seconds", "Until a request's last token", buckets=_SECONDS)
STREAMS = Gauge("coppice_streams", "Under way or waiting", multiprocess_mode="livesum")
READY = Gauge("coppice_ready", "Workers that the daemon serves", multiprocess_mode="livesum")
SEQUENCES = Gauge("coppice_sequences", "That the daemon has open", multiprocess_mode="livesum")
POOL = Gauge("coppice_pool_bytes", "The daemon's, for KV", multiprocess_mode="livemax")
POOL_USED = Gauge("coppice_pool_used_bytes", "Of it", multiprocess_mode="livemax")


def note(stats: coppice.Stats | None) -> None:
    """What the daemon has counted; None: there is none."""
    SEQUENCES.set(stats.n_seqs if stats else 0)
    if stats:
        POOL.set(stats.pool_bytes)
        POOL_USED.set(stats.pool_used_bytes)


def _drop_dead(folder: str) -> None:
    """A worker that is gone has no gauges; what it has counted stays."""
    for file in Path(folder).glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)


_TRIES = 20


def exposition() -> tuple[bytes, str]:
    """Text and its type."""
    registry = REGISTRY
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is not None:
        _drop_dead(folder)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return _text_of(registry), CONTENT_TYPE_LATEST


def _text_of(registry: CollectorRegistry) -> bytes:
    """A worker that begins has files that are empty for a moment: then once more."""
    for _ in range(_TRIES - 1):
        try:
            return generate_latest(registry)
        except struct.error:
            time.sleep(0.01)
    return generate_latest(registry)
