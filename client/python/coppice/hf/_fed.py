"""What a forward pass is given, held against where its rows stand.

K of a token depends on its place, so the places must be those that every process gives them: a row
counts from its first token that is not padding. Padding is on the left.
"""

from __future__ import annotations

from typing import Any

import torch

from .._errors import Error
from ._errors import invalid, unsupported


def count_pads(input_ids: torch.Tensor, mask: torch.Tensor | None) -> list[int]:
    """Of each row, on the left."""
    if mask is None:
        return [0] * input_ids.shape[0]
    if mask.shape != input_ids.shape:
        raise invalid(
            f"attention_mask is {tuple(mask.shape)}, input_ids {tuple(input_ids.shape)}"
        )
    pads: list[int] = (mask == 0).sum(1).tolist()
    check_mask(mask, pads)
    if max(pads) == mask.shape[1]:
        raise invalid(f"row {pads.index(max(pads))} of attention_mask is padding alone")
    return pads


def places(first: int, n: int, pads: list[int], device: torch.device) -> torch.Tensor:
    """Of columns first to first + n of each row: below 0 in padding."""
    columns = torch.arange(first, first + n, device=device).expand(len(pads), n)
    return columns - torch.tensor(pads, device=device)[:, None] if any(pads) else columns


MORE_IS_HIDDEN = "attention_mask hides more than padding on the left"
NOT_COUNTED = "position_ids do not count each row's tokens from 0 on"


def hides_padding(mask: torch.Tensor, pads: list[int]) -> torch.Tensor:
    """Whether it does, and nothing else."""
    if not any(pads) and mask.shape[0] == len(pads):
        return mask.all()
    expected = places(0, mask.shape[1], pads, mask.device) >= 0
    if mask.shape != expected.shape:
        return torch.tensor(False)
    return ((mask != 0) == expected).all()


def check_mask(mask: torch.Tensor, pads: list[int]) -> None:
    if not hides_padding(mask, pads):
        raise unsupported(MORE_IS_HIDDEN)


class Fed:
    """Rows of ids from column `start` on. The mask or the places say which that is, else `length`:
    some of what is fed may be cached."""

    def __init__(self, kwargs: dict[str, Any], length: int) -> None:
        ids = kwargs.get("input_ids")
        if ids is None:
            raise unsupported("inputs_embeds: KV is shared by input_ids, which are not given")
        self.n_rows: int = ids.shape[0]
        self.n_columns: int = ids.shape[1]
        self.mask: Any = kwargs.get("attention_mask")
        if self.mask is not None and getattr(self.mask, "ndim", 0) != 2:
            raise unsupported("attention_mask must be one of padding: [rows, columns]")
        self.positions: Any = kwargs.get("position_ids")
        if self.positions is not None and self.positions.ndim != 2:
            raise unsupported(f"position_ids have {self.positions.ndim} dimensions")
        self.length = length
        self.ids: list[list[int]] = []  # once they are checked
        self.start = length
        self._ids = ids

    def _find_start(self, pads: list[int]) -> int:
        if self.mask is not None:
            return int(self.mask.shape[1] - self.n_columns)
        if self.positions is not None:
            return int(self.positions[0, -1] + pads[0] + 1 - self.n_columns)
        return self.length

    def check(self, pads: list[int]) -> None:
        """And reads the ids: all by one transfer, which on a GPU is what it costs."""
        self.start = self._find_start(pads)
        if self.start < 0:
            raise invalid(f"{self.n_columns} tokens for {self.start + self.n_columns} columns")
        if self.positions is None:
            self._check_default_positions(pads)
        checks: list[tuple[torch.Tensor, Error]] = []
        if self.mask is not None:
            checks.append((hides_padding(self.mask, pads), unsupported(MORE_IS_HIDDEN)))
        if self.positions is not None:
            checks.append((self._counts(pads), invalid(NOT_COUNTED)))
        self._read(checks)

    def _read(self, checks: list[tuple[torch.Tensor, Error]]) -> None:
        ids = self._ids.reshape(-1)
        flags = [flag.to(ids).reshape(1) for flag, _ in checks]
        values: list[int] = torch.cat([ids, *flags]).tolist()
        for value, (_, error) in zip(values[ids.numel() :], checks):
            if not value:
                raise error
        n = self.n_columns
        self.ids = [values[i * n : (i + 1) * n] for i in range(self.n_rows)]

    def _check_default_positions(self, pads: list[int]) -> None:
        if any(pads) or self.start != self.length:
            raise invalid("position_ids are wanted: rows have padding, or tokens come again")

    def _counts(self, pads: list[int]) -> torch.Tensor:
        """Whether position_ids are the tokens' places."""
        if not any(pads) and self.n_columns == 1:
            return (self.positions == self.start).all()
        expected = places(self.start, self.n_columns, pads, self.positions.device)
        return ((self.positions == expected) | (expected < 0)).all()

    def tokens(self, row: int, n_pads: int) -> tuple[int, list[int]]:
        """A row's tokens without padding, behind the place of the first."""
        n_skipped = max(n_pads - self.start, 0)
        return max(self.start - n_pads, 0), self.ids[row][n_skipped:]
