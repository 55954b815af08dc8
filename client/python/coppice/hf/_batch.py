"""Rows that go through a model together: what a cache has at the daemon."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .._coppice import Model
from .._errors import Error
from ._errors import closed, invalid
from ._fed import Fed, count_pads
from ._forward import Forward, Layout
from ._row import Row, open_rows, split_rows, unique
from ._workspace import Workspace


class Batch:
    def __init__(self, workspace: Workspace) -> None:
        self.workspace: Workspace | None = workspace
        self.rows: list[Row] = []
        self.forward: Forward | None = None

    @property
    def length(self) -> int:
        """Columns that all rows have, padding included. A pass counts once its last layer is."""
        self.opened()
        return min(row.n_pads + row.n_tokens for row in self.rows)

    def open(self, model: Model, ids: torch.Tensor, mask: torch.Tensor | None, salt: int) -> None:
        if ids.ndim != 2 or not ids.numel():
            raise invalid(f"input_ids is {tuple(ids.shape)}, wanted: [rows, columns]")
        pads = count_pads(ids, mask)
        prompts = [row[n:] for row, n in zip(ids.tolist(), pads)]
        self.rows = open_rows(self.opened().lane, model, prompts, pads, salt)

    def opened(self) -> Workspace:
        if self.workspace is None:
            raise closed("cache")
        return self.workspace

    def begin(self, kwargs: dict[str, Any]) -> None:
        """A pass of the whole model. Raises before anything has changed, but for twins' forks."""
        workspace = self.settled()
        fed = Fed(kwargs, self.length)
        rows = self._rows_for(fed.n_rows)
        fed.check([row.n_pads for row in rows])
        news = [row.unseen(*fed.tokens(i, row.n_pads)) for i, row in enumerate(rows)]
        if not any(news):
            raise invalid("all these tokens are in the cache: crop it, or give the next ones")
        self.rows = split_rows(rows, news)
        if not self.forward or not self.forward.layout.fits(self.rows, news, fed.n_columns):
            self.forward = None  # its rows are the workspace's, which may give them back
            self.forward = Forward(workspace, Layout(self.rows, news, fed.n_columns))
        self.forward.begin(news)

    def _rows_for(self, n: int) -> list[Row]:
        """generate repeats each row: for its beams, and for num_return_sequences."""
        if n % len(self.rows):
            raise invalid(f"the cache was made for {len(self.rows)} rows, the model is given {n}")
        return [row for row in self.rows for _ in range(n // len(self.rows))]

    def settled(self) -> Workspace:
        """Behind all that was submitted; what a pass that broke off has left is gone."""
        workspace = self.opened()
        if self.forward and not self.forward.done:
            self.forward = None
            self._trim()
        workspace.check()
        return workspace

    def _trim(self) -> None:
        for row in unique(self.rows):
            self.opened().submit(partial(row.seq.trim, row.n_tokens))

    def crop(self, n_columns: int) -> None:
        """Drops the last columns."""
        self.settled()
        n_kept = self.length - n_columns
        for row in unique(self.rows):
            row.forget(max(n_kept - row.n_pads, 0))
        self._trim()

    def select(self, places: list[int]) -> None:
        """Row i becomes what row places[i] is. Rows that are nobody's any more are closed."""
        self.settled()
        kept = [self.rows[i] for i in places]
        gone = set(self.rows) - set(kept)
        self.rows = kept
        for row in gone:
            row.seq.close()

    def close(self) -> Workspace | None:
        """The workspace, for others to use, unless something is wrong with it."""
        workspace, self.workspace = self.workspace, None
        rows, self.rows, self.forward = unique(self.rows), [], None
        try:
            if workspace:
                workspace.check()
            for row in rows:
                row.seq.close()
        except Error:
            return None
        return workspace
