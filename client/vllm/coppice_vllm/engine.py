"""What a vLLM engine has at the daemon: its model, a lane, rows in an arena, a sequence a request.

The scheduler's side opens sequences, and closes them; the worker's side extends them and submits
steps. Both are in one process and one thread, and meet here by the id of vLLM's engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import coppice
import torch

from .config import DTYPES, Shape, salt_of, shape_of, weights_hash

SPARE_BYTES = 1 << 12  # for the alignment of tensors


class Span(NamedTuple):
    """A request's tokens in a step: its sequence has `start`, to which come `tokens`."""

    request_id: str
    start: int
    tokens: tuple[int, ...]


class Opened:
    """A request's sequence. n_tokens: how many have KV, or will when what is submitted is done."""

    def __init__(self, seq: coppice.Sequence, n_preemptions: int) -> None:
        self.seq, self.n_preemptions = seq, n_preemptions
        self.n_tokens = 0


class Rows:
    """Memory for the rows of a step, in one layer."""

    def __init__(self, connection: coppice.Connection, shape: Shape, device: Any, n: int) -> None:
        heads = 2 * shape.n_q_heads + 2 * shape.n_kv_heads
        n_bytes = n * heads * shape.head_dim * shape.dtype.itemsize + SPARE_BYTES
        self.arena = arena_on(connection, device, n_bytes)
        q = n, shape.n_q_heads, shape.head_dim
        kv = n, shape.n_kv_heads, shape.head_dim
        self.q, self.k, self.v, self.o = (self._tensor(x, shape.dtype) for x in (q, kv, kv, q))

    def _tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        kind: Any = DTYPES[dtype]
        return torch.from_dlpack(self.arena.tensor(shape, kind))


def arena_on(connection: coppice.Connection, device: torch.device, n_bytes: int) -> coppice.Arena:
    if device.type == "cpu":
        return connection.arena(n_bytes)
    uuid = bytes(torch.cuda.get_device_properties(device).uuid.bytes)
    return connection.arena(n_bytes, memory="device", device=uuid)


class Engine:
    def __init__(self, config: Any, layers: list[Any]) -> None:
        model = config.model_config
        self.device = torch.device(config.device_config.device)
        self.shape = shape_of(layers, model.dtype)
        self.n_rows = config.scheduler_config.max_num_batched_tokens
        self.connection = coppice.connect(
            config.kv_transfer_config.get_from_extra_config("socket", None)
        )
        self.model = self.connection.model(
            f"vllm {model.architectures[0]}",
            n_layers=self.shape.n_layers,
            n_q_heads=self.shape.n_q_heads,
            n_kv_heads=self.shape.n_kv_heads,
            head_dim=self.shape.head_dim,
            dtype=DTYPES[self.shape.dtype],
            scale=self.shape.scale,
            weights_hash=weights_hash(config),
        )
        self.lane = self.connection.lane()
        self.rows = Rows(self.connection, self.shape, self.device, self.n_rows)
        self.opened: dict[str, Opened] = {}
        self.ticket: int | None = None
        self._parts: list[coppice.Part] = []
        self._layout: list[tuple[coppice.Sequence, int]] = []

    # ---- of the scheduler ----------------------------------------------------------------------

    def match(self, request: Any) -> int | None:
        """How many of the request's tokens need not be computed. None: others are at it, or there
        is no room for one more now; ask again."""
        opened = self.opened.get(request.request_id)
        if opened and opened.n_preemptions != request.num_preemptions:
            self.close_request(request.request_id)
            opened = None
        try:
            opened = opened or self._open(request)
            match = opened.seq.wait(0)
        except coppice.TimedOut:
            return None
        except (coppice.NoRoom, coppice.LimitReached):
            if not self.opened:
                raise
            return None
        opened.n_tokens = match.cached
        return min(match.cached, int(request.num_tokens) - 1)

    def _open(self, request: Any) -> Opened:
        # Of the first token alone nothing is cached: all logits are wanted.
        n_asked = 1 if request.skip_reading_prefix_cache else request.num_tokens
        tokens = list(request.all_token_ids[:n_asked])
        seq = self.lane.open(self.model, tokens, salt=salt_of(request.cache_salt))
        opened = Opened(seq, request.num_preemptions)
        self.opened[request.request_id] = opened
        return opened

    def close_request(self, request_id: str) -> None:
        if opened := self.opened.pop(request_id, None):
            self._layout, self._parts = [], []
            opened.seq.close()

    # ---- of the worker -------------------------------------------------------------------------

    def begin(self, spans: list[Span]) -> None:
        """A step's tokens, in order of the batch's rows."""
        for span in spans:
            opened = self.opened[span.request_id]
            if opened.n_tokens != span.start:
                self._submit(partial(opened.seq.trim, span.start))
            self._submit(partial(opened.seq.extend, span.tokens))
            opened.n_tokens = span.start + len(span.tokens)
        layout = [(self.opened[span.request_id].seq, len(span.tokens)) for span in spans]
        if layout != self._layout:
            self._parts = self._parts_of(layout)
            self._layout = layout

    def _parts_of(self, layout: list[tuple[coppice.Sequence, int]]) -> list[coppice.Part]:
        parts, first, rows = [], 0, self.rows
        for seq, n in layout:
            at = slice(first, first + n)
            parts.append(coppice.Part(seq, rows.q[at], rows.k[at], rows.v[at], rows.o[at]))
            first += n
        return parts

    def _submit(self, entry: Callable[[], int]) -> None:
        while True:
            try:
                self.ticket = entry()
                return
            except coppice.LaneFull:
                self.check()

    def attend(self, layer: int, q: Any, k: Any, v: Any, out: Any) -> None:
        """All [rows, heads, head_dim], also out. On a GPU by torch's stream."""
        n, rows = q.shape[0], self.rows
        for new, kept in ((q, rows.q), (k, rows.k), (v, rows.v)):
            kept[:n].copy_(new)
        if self.device.type == "cpu":
            self._submit(lambda: self.lane.step(layer, self._parts))
            self.check()
        else:
            stream = torch.cuda.current_stream(self.device)
            self._submit(lambda: self.lane.step(layer, self._parts, stream=stream))
            assert self.ticket is not None
            self.lane.wait_on_stream(self.ticket, stream)
        out.copy_(rows.o[:n])

    def check(self) -> None:
        """Waits for all that was submitted. Raises how it failed."""
        if self.ticket is not None:
            self.lane.wait(self.ticket)

    def close(self) -> None:
        for request_id in list(self.opened):
            self.close_request(request_id)
        self.lane.close()
        self.rows.arena.close()
        self.connection.close()


_engines: dict[str, Engine] = {}


def make_engine(config: Any, layers: list[Any]) -> Engine:
    """By the worker, which has the layers."""
    key = config.kv_transfer_config.engine_id
    if key not in _engines:
        _engines[key] = Engine(config, layers)
    return _engines[key]


def engine_of(config: Any) -> Engine:
    try:
        return _engines[config.kv_transfer_config.engine_id]
    except KeyError:
        raise RuntimeError(
            "coppice: vLLM's scheduler and worker are in two processes: "
            "--distributed-executor-backend uni"
        ) from None


def end_engine(config: Any) -> None:
    if engine := _engines.pop(config.kv_transfer_config.engine_id, None):
        engine.close()
