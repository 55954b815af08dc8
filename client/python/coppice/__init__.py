"""Attention over KV that many processes share: the daemon's client for Python.

    with coppice.connect() as connection:
        model = coppice.load_model(connection, "path/to/checkpoint")
        seq = connection.lane().open(model, prompt)
        seq.wait()
        [row] = seq.decode(prompt[seq.cached :]).wait()

Nothing beside this package is imported, but for what LLM and Sampling need once they are asked for.
"""

from typing import TYPE_CHECKING

from ._coppice import (
    Arena,
    Capture,
    Connection,
    Decode,
    Lane,
    Match,
    Model,
    Part,
    Progress,
    Result,
    Row,
    Sequence,
    State,
    Stats,
    Tensor,
    TensorInfo,
    Weights,
    version,
)
from ._errors import (
    Busy,
    Canceled,
    Closed,
    DaemonGone,
    Draining,
    Error,
    ForkedChild,
    Invalid,
    LaneFull,
    LimitReached,
    NoDaemon,
    NoDevice,
    NoRoom,
    NotFound,
    TimedOut,
    TooLong,
    Unsupported,
    VersionMismatch,
)
from ._models import load_model, open_weights, weight_files

if TYPE_CHECKING:
    from .generation.sampling import Sampling
    from .llm import LLM

__version__ = version()
connect = Connection

__all__ = [
    "Arena",
    "Busy",
    "Canceled",
    "Capture",
    "Closed",
    "Connection",
    "DaemonGone",
    "Decode",
    "Draining",
    "Error",
    "ForkedChild",
    "Invalid",
    "LLM",
    "Lane",
    "LaneFull",
    "LimitReached",
    "Match",
    "Model",
    "NoDaemon",
    "NoDevice",
    "NoRoom",
    "NotFound",
    "Part",
    "Progress",
    "Result",
    "Row",
    "Sampling",
    "Sequence",
    "State",
    "Stats",
    "Tensor",
    "TensorInfo",
    "TimedOut",
    "TooLong",
    "Unsupported",
    "VersionMismatch",
    "Weights",
    "connect",
    "load_model",
    "open_weights",
    "version",
    "weight_files",
]


def __getattr__(name: str) -> object:
    if name == "LLM":
        from .llm import LLM

        return LLM
    if name == "Sampling":
        from .generation.sampling import Sampling

        return Sampling
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
