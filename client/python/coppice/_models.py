"""Checkpoints as Hugging Face lays them out: a folder with config.json and safetensors files."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ._coppice import Connection, Model, Progress, Weights
from ._errors import Invalid, NotFound, TimedOut

PathLike = str | os.PathLike[str]
_LOOK_SECONDS = 0.1


def _names(index: Path) -> list[str]:
    """Of the files that an index names; all have to lie in its folder."""
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(errno.EINVAL, f"{index} has no weight_map of names: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
            raise Invalid(errno.EINVAL, f"{index} names {name!r}, which is not in its folder")
    return names


def weight_files(folder: PathLike) -> list[Path]:
    """The safetensors files of a checkpoint: those of its index, else all there are."""
    index = Path(folder) / "model.safetensors.index.json"
    if index.is_file():
        return [Path(folder) / name for name in _names(index)]
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files and not Path(folder).is_dir():
        raise NotFound(errno.ENOENT, f"{folder} is no folder; give a checkpoint's, unpacked")
    if not files:
        raise NotFound(errno.ENOENT, f"there is no file *.safetensors in {folder}")
    return files


@contextmanager
def _opened(files: list[Path]) -> Iterator[list[int]]:
    descriptors: list[int] = []
    try:
        for file in files:
            # of a pipe nobody waits for who writes: the daemon says that it is one
            descriptors.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def open_weights(connection: Connection, folder: PathLike) -> Weights:
    """Hands a checkpoint's files to the daemon, which has them on their way then."""
    with _opened(weight_files(folder)) as descriptors:
        return connection.weights(descriptors)


def wait_for(weights: Weights, progress: Callable[[Progress], object] | None) -> None:
    """Waits until weights are there; progress is called now and then, and at the end."""
    if progress is None:
        weights.wait()
        return
    while not weights.ready:
        try:
            progress(weights.wait(_LOOK_SECONDS))
        except TimedOut:
            progress(weights.progress())


def load_model(
    connection: Connection,
    folder: PathLike,
    *,
    max_positions: int = 0,
    dtype: str | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Model:
    """A checkpoint's weights and program, as a model whose tokens the daemon computes.

    max_positions: a sequence has so many tokens at most; 0: as many as the model was made for.
    dtype: of KV and products; None: what its config says. Blocks until the weights are there.
    """
    with open_weights(connection, folder) as weights:
        wait_for(weights, progress)
        config = os.fspath(Path(folder) / "config.json")
        return connection.program(weights, config, max_positions=max_positions, dtype=dtype)
