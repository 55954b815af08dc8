"""A forward pass: which new tokens go to the daemon, layer by layer, and where O goes then."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .._coppice import Part
from ._errors import invalid, unsupported
from ._mask import Window, check_mask
from ._options import check_options
from ._row import Row
from ._shape import Shape
from ._workspace import Rows, Workspace


class Layout:
    """Where tokens of [rows, columns] lie among those computed.

    `gather`: the place in the input of each token computed. `scatter`: of each token of the input,
    its row of o, or 0 where it is not computed: padding, and what is cached.
    """

    def __init__(self, rows: list[Row], news: list[tuple[int, ...]], n_columns: int) -> None:
        self.rows, self.n_columns = rows, n_columns
        self.counts = [len(new) for new in news]
        self.spans: dict[Row, tuple[int, int]] = {}
        gather: list[int] = []
        for i, (row, count) in enumerate(zip(rows, self.counts)):
            if row not in self.spans:
                self.spans[row] = len(gather), count
                gather.extend(range((i + 1) * n_columns - count, (i + 1) * n_columns))
        self.n = len(gather)
        self.is_whole = gather == list(range(len(rows) * n_columns))  # nothing is left out
        self.gather = torch.tensor(gather, dtype=torch.int64)
        self.scatter = torch.tensor(self._scatter(), dtype=torch.int64)

    def _scatter(self) -> list[int]:
        places: list[int] = []
        for row, count in zip(self.rows, self.counts):
            first, _ = self.spans[row]
            places.extend([0] * (self.n_columns - count))
            places.extend(range(1 + first, 1 + first + count))
        return places

    def fits(self, rows: list[Row], news: list[tuple[int, ...]], n_columns: int) -> bool:
        counts = [len(new) for new in news]
        return (self.rows, self.counts, self.n_columns) == (rows, counts, n_columns)


class Forward:
    """A pass, and then others of the same layout: its parts are made once."""

    def __init__(
        self, workspace: Workspace, layout: Layout, memory: Rows | None = None
    ) -> None:
        self.workspace, self.layout = workspace, layout
        self.memory = memory or workspace.reserve(layout.n)
        n, memory = layout.n, self.memory
        self.grid = len(layout.rows), layout.n_columns
        self.news_at = [memory.q[:n], memory.k[:n], memory.v[:n]]
        self.shaped_at: list[torch.Tensor] = []  # the same as a layer's news are, once there are
        self.o, self.lse = memory.o[1 : 1 + n], memory.lse[1 : 1 + n]
        if layout.is_whole:
            self.o, self.lse = self._shaped(self.o), self._shaped(self.lse)
        self.wanted = wanted_of(workspace.shape, layout)
        self.gather = layout.gather.to(workspace.device)
        self.scatter = layout.scatter.to(workspace.device)
        self.parts = [
            part_of(row, self.memory, first, count)
            for row, (first, count) in layout.spans.items()
            if count
        ]
        self.news: dict[Row, tuple[int, ...]] = {}
        self.n_tokens = 0  # of the longest row, the new ones among them
        self.done = True

    def begin(self, news: list[tuple[int, ...]]) -> None:
        self.news = dict(zip(self.layout.rows, news))
        self.n_tokens = max(row.n_tokens + len(new) for row, new in self.news.items())
        if window := self.workspace.shape.window:
            self.check_window(window)
        self.done = False
        for row, new in self.news.items():
            if new:
                self.workspace.submit(partial(row.seq.extend, new))

    def finish(self) -> None:
        for row, new in self.news.items():
            row.grow(new)
        self.done = True

    def attend(self, layer: int, q: Any, k: Any, v: Any, sinks: Any) -> torch.Tensor:
        """[rows, heads, columns, head_dim] of q, k, v; O of [rows, columns, heads, head_dim]."""
        news = [q, k, v]
        if not self.layout.is_whole:
            self._gather(news)
        else:
            if not self.shaped_at:
                self.shaped_at = [shaped_as(new, at) for new, at in zip(news, self.news_at)]
            torch._foreach_copy_(self.shaped_at, news)  # by one kernel
        self.step(layer)
        o = self._results(self.memory.o, self.o)
        return o if sinks is None else o * self._kept(sinks).to(o.dtype)

    def _gather(self, news: list[torch.Tensor]) -> None:
        for buffer, new in zip(self.news_at, news):
            torch.index_select(flat(new), 0, self.gather, out=buffer)

    def _shaped(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows x columns, ...] as [rows, columns, ...]."""
        return rows.view(*self.grid, *rows.shape[1:])

    def _results(self, rows: torch.Tensor, computed: torch.Tensor) -> torch.Tensor:
        """A copy: the next layer's are written where these lie."""
        if self.layout.is_whole:
            return computed.clone()
        return self._shaped(rows.index_select(0, self.scatter))

    def step(self, layer: int) -> None:
        self.workspace.step(layer, self.parts)

    def check_window(self, window: Window) -> None:
        if self.n_tokens > window.n_tokens:
            raise unsupported(window.sentence(self.n_tokens))

    def is_within(self, n_tokens: int) -> bool:
        """Asked of each window that a mask is made for, if a layer has it or not."""
        return self.n_tokens <= n_tokens

    def _kept(self, sinks: torch.Tensor) -> torch.Tensor:
        """What a sink leaves of O: it takes part in the sum alone."""
        lse = self._results(self.memory.lse, self.lse)
        return torch.sigmoid(lse - sinks.float())[..., None]


def flat(rows: torch.Tensor) -> torch.Tensor:
    """[rows, heads, columns, head_dim] as [rows x columns, heads, head_dim]."""
    n_rows, n_heads, n_columns, head_dim = rows.shape
    if n_columns == 1:
        return rows.reshape(n_rows, n_heads, head_dim)
    return rows.transpose(1, 2).reshape(-1, n_heads, head_dim)


def shaped_as(new: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[rows x columns, heads, head_dim] as [rows, heads, columns, head_dim]. Tensors are copied by
    one kernel where all strides are alike; that of a single column is any."""
    n_rows, n_heads, n_columns, head_dim = new.shape
    view = rows.view(n_rows, n_columns, n_heads, head_dim).transpose(1, 2)
    if n_columns > 1:
        return view
    of_row, of_head, _, of_dim = view.stride()
    return view.as_strided(view.shape, (of_row, of_head, new.stride(2), of_dim))


def part_of(row: Row, memory: Rows, first: int, count: int) -> Part:
    at = slice(first, first + count)
    out = slice(1 + first, 1 + first + count)
    return Part(
        row.seq, memory.q[at], memory.k[at], memory.v[at], memory.o[out], memory.lse[out]
    )


def wanted_of(shape: Shape, layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of q, and of k and v."""
    n_rows, tail = len(layout.rows), (layout.n_columns, shape.head_dim)
    return (n_rows, shape.n_q_heads, *tail), (n_rows, shape.n_kv_heads, *tail)


def check_tensor(name: str, tensor: torch.Tensor, wanted: tuple[int, ...], at: Workspace) -> None:
    if tensor.shape != wanted:
        raise invalid(f"{name} is {list(tensor.shape)}, wanted: {list(wanted)}")
    if tensor.dtype != at.shape.dtype:
        raise invalid(f"{name} is of {tensor.dtype}, the model was attached as {at.shape.dtype}")
    if tensor.device != at.device:
        raise invalid(f"{name} is on {tensor.device}, the model was attached on {at.device}")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise invalid("there are no gradients through the daemon: use torch.no_grad()")


def check_qkv(forward: Forward, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    of_q, of_kv = forward.wanted
    dtype, device = forward.workspace.shape.dtype, forward.workspace.device
    if (
        q.shape == of_q
        and k.shape == of_kv == v.shape
        and q.dtype is k.dtype is v.dtype is dtype
        and q.device == k.device == v.device == device
        and not torch.is_grad_enabled()
    ):
        return
    check_tensor("q", q, of_q, forward.workspace)
    check_tensor("k", k, of_kv, forward.workspace)
    check_tensor("v", v, of_kv, forward.workspace)


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **options: Any
) -> tuple[torch.Tensor, None]:
    """What transformers calls for attn_implementation="coppice"."""
    forward: Forward | None = getattr(key, "coppice_forward", None)
    if forward is None:
        raise invalid(
            "coppice's attention needs past_key_values=coppice.hf.attach(...).cache(...), and keys "
            "as that gives them: a model that changes them behind its cache cannot be had"
        )
    check_qkv(forward, query, key, value)
    check_mask(attention_mask, module)
    check_options(forward.workspace.shape, options, query.shape[2])
    if (window := options.get("sliding_window")) is not None:
        forward.check_window(Window("sliding_window", window))
    out = forward.attend(module.layer_idx, query, key, value, options.get("s_aux"))
    if module.layer_idx == forward.workspace.shape.n_layers - 1:
        forward.finish()
    return out, None


