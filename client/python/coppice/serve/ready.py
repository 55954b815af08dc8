"""Whether a checkpoint can be served, found out before any worker begins.

A worker that fails in its beginning is started again without end.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from ..generation.checkpoint import Checkpoint
from ..generation.sampling import Sampling
from ..generation.tokenizer import tokenizer_of


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """Whatever goes wrong within it is said to be of that file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # also of the tokenizer's library, which raises nothing narrower
        told = f"{path} cannot be used: {error}; mend it, or fetch the checkpoint anew"
        raise ValueError(told) from error


def checked(folder: str) -> Checkpoint:
    """Raises what is wrong, with the file's name."""
    try:
        checkpoint = Checkpoint(folder)
    except RecursionError as error:
        raise ValueError(f"{folder} has a file of JSON that is nested too deep") from error
    path = checkpoint.path
    with _of(checkpoint.config_path):
        _ = checkpoint.max_positions
    with _of(path / "generation_config.json"):
        Sampling(**checkpoint.defaults())
    with _of(_template_path(path)):
        _check_template(checkpoint)
    with _of(path / "tokenizer.json"):
        tokenizer_of(checkpoint)
    return checkpoint


def _template_path(folder: Path) -> Path:
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own
    usual = folder / "tokenizer_config.json"
    return usual if usual.is_file() else folder / "special_tokens_map.json"


def _check_template(checkpoint: Checkpoint) -> None:
    source = checkpoint.chat_template()
    if source is None or checkpoint.tokenizer_path() is None:
        return
    from ..generation.template import ChatTemplate

    ChatTemplate(source, checkpoint.special())
