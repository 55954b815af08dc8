"""A lane, and rows of Q, K, V and O in an arena: what one batch at a time has for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._coppice import Arena, Connection, Part
from .._errors import LaneFull
from ._shape import DTYPES, Shape

SPARE_BYTES = 1 << 12  # for the alignment of tensors
KEPT_ROWS = 4096  # of so few rows an arena is not worth giving back


class Rows:
    """Memory for n tokens in one layer. Row 0 of o and lse stays 0: of tokens not computed."""

    def __init__(self, connection: Connection, shape: Shape, device: torch.device, n: int) -> None:
        self.n = n
        heads = 2 * shape.n_q_heads + 2 * shape.n_kv_heads
        row_bytes = heads * shape.head_dim * shape.dtype.itemsize + 4 * shape.n_q_heads
        self.arena = arena_on(connection, device, (n + 1) * row_bytes + SPARE_BYTES)
        kind = DTYPES[shape.dtype]
        q_shape = n, shape.n_q_heads, shape.head_dim
        kv_shape = n, shape.n_kv_heads, shape.head_dim
        self.q = self._tensor(q_shape, kind)
        self.k, self.v = (self._tensor(kv_shape, kind) for _ in range(2))
        self.o = self._tensor((n + 1, *q_shape[1:]), kind)
        self.lse = self._tensor((n + 1, shape.n_q_heads), "float32")
        self.o[0] = 0
        self.lse[0] = 0

    def _tensor(self, shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
        return torch.from_dlpack(self.arena.tensor(shape, dtype))


def arena_on(connection: Connection, device: torch.device, n_bytes: int) -> Arena:
    if device.type == "cpu":
        return connection.arena(n_bytes)
    uuid = bytes(torch.cuda.get_device_properties(device).uuid.bytes)
    return connection.arena(n_bytes, memory="device", device=uuid)


class Workspace:
    def __init__(self, connection: Connection, shape: Shape, device: torch.device) -> None:
        self.connection, self.shape, self.device = connection, shape, device
        self.lane = connection.lane()
        self.rows: Rows | None = None
        self.ticket: int | None = None  # of the latest entry
        self.graphs: dict[int, Any] = {}  # by numbers of rows, the oldest first
        self._pool: Any = None

    def reserve(self, n: int) -> Rows:
        """Rows for n tokens or more; those of a long prompt are given back."""
        rows = self.rows
        if rows and n <= rows.n and (rows.n <= KEPT_ROWS or n >= rows.n // 8):
            return rows
        self._drop_rows()
        self.rows = Rows(self.connection, self.shape, self.device, max(16, n + n // 8))
        return self.rows

    def _drop_rows(self) -> None:
        if self.rows is None:
            return
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        self.rows.arena.close()
        self.rows = None

    def submit(self, entry: Callable[[], int]) -> int:
        """Where the lane is full it waits for what is in it."""
        while True:
            try:
                self.ticket = entry()
                return self.ticket
            except LaneFull:
                self.check()

    def check(self) -> None:
        """Waits for all that was submitted. Raises how it failed."""
        if self.ticket is not None:
            self.lane.wait(self.ticket)

    def step(self, layer: int, parts: list[Part]) -> None:
        """On a CPU it is done on return; else what comes next on torch's stream runs after it."""
        if self.device.type == "cpu":
            self.submit(lambda: self.lane.step(layer, parts))
            self.check()
            return
        stream: int = torch._C._cuda_getCurrentRawStream(self.device.index)
        ticket = self.submit(lambda: self.lane.step(layer, parts, stream=stream))
        self.lane.wait_on_stream(ticket, stream)

    @property
    def pool(self) -> Any:
        """Memory that all graphs use, as one runs at a time."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def make_room(self, n_graphs: int) -> None:
        """For one more, where there may be so many."""
        while len(self.graphs) >= max(n_graphs, 1):
            self.graphs.pop(next(iter(self.graphs))).close()

    def drop_graphs(self) -> None:
        self.make_room(1)

    def close(self) -> None:
        self.drop_graphs()
        self._drop_rows()
        self.lane.close()
