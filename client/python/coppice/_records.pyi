"""Named tuples that calls of the extension return. They are in `_coppice`: here is no module."""

from typing import Any, Final, final

from _typeshed import structseq

from ._coppice import Dtype, Tensor

@final
class Match(structseq[Any], tuple[int, int, bool]):
    """How much of a prompt is there."""

    __match_args__: Final = ("cached", "pending", "claimed")
    @property
    def cached(self) -> int:
        """So many of its first tokens are."""
    @property
    def pending(self) -> int:
        """So many more are on their way."""
    @property
    def claimed(self) -> bool:
        """What is not cached is ours to compute, and others may wait for it."""

@final
class State(structseq[Any], tuple[int, int]):
    """Of a sequence, as the daemon counts."""

    __match_args__: Final = ("n_tokens", "n_live")
    @property
    def n_tokens(self) -> int:
        """Tokens that it has."""
    @property
    def n_live(self) -> int:
        """Of an extension or draft under way."""

@final
class Result(structseq[Any], tuple[int, int, int, float, float, int]):
    """How a ticket ended."""

    __match_args__: Final = ("ticket", "status", "value", "attended", "mass", "cause")
    @property
    def ticket(self) -> int:
        """Its number."""
    @property
    def status(self) -> int:
        """0 or -errno."""
    @property
    def value(self) -> int:
        """Of a decode, failed or not: how many tokens were published."""
    @property
    def attended(self) -> float:
        """Of sparse prefill: the share of the path that was attended to, else 1."""
    @property
    def mass(self) -> float:
        """Of sparse prefill: the share of attention that this is estimated to be, else 1."""
    @property
    def cause(self) -> int:
        """The ticket that failed first, whose status this has; or 0."""

@final
class Row(
    structseq[Any],
    tuple[tuple[int, ...], tuple[float, ...], float, float, Tensor | None, Tensor | None],
):
    """What comes of a token."""

    __match_args__: Final = ("ids", "logprobs", "lse", "score", "logits", "hidden")
    @property
    def ids(self) -> tuple[int, ...]:
        """The likeliest next tokens, likeliest first."""
    @property
    def logprobs(self) -> tuple[float, ...]:
        """Log-probabilities of ids."""
    @property
    def lse(self) -> float:
        """The log of the sum of exp(logit), so that a logit is logprob + lse."""
    @property
    def score(self) -> float:
        """The log-probability of the next of the tokens given (score=True); nan of the last one."""
    @property
    def logits(self) -> Tensor | None:
        """Of the vocabulary, float32, in memory that the daemon wrote; None: not asked for."""
    @property
    def hidden(self) -> Tensor | None:
        """The row of the final norm, float32, as logits are; None: not asked for."""

@final
class Progress(structseq[Any], tuple[int, int]):
    """Of weights on their way."""

    __match_args__: Final = ("n_bytes", "n_done")
    @property
    def n_bytes(self) -> int:
        """Of the files; 0: not known yet."""
    @property
    def n_done(self) -> int:
        """Bytes of them that are there."""

@final
class TensorInfo(structseq[Any], tuple[int, str, Dtype, tuple[int, ...], int]):
    """A tensor of weights."""

    __match_args__: Final = ("number", "name", "dtype", "shape", "offset")
    @property
    def number(self) -> int:
        """As Weights.tensor takes it."""
    @property
    def name(self) -> str:
        """As the files have it."""
    @property
    def dtype(self) -> Dtype:
        """The type of its elements."""
    @property
    def shape(self) -> tuple[int, ...]:
        """[n_out, n_in], or [n_in] of a vector."""
    @property
    def offset(self) -> int:
        """Where in Weights.map it begins, in bytes."""

@final
class Stats(
    structseq[Any],
    tuple[int, int, int, int, int, int, int, int, int, int, int, bool, int],
):
    """What the daemon has counted of a connection, and of all where that is said."""

    __match_args__: Final = (
        "session", "n_lanes", "n_seqs", "n_arenas", "arena_bytes", "n_entries",
        "n_decode_steps", "tokens_matched", "tokens_computed", "pool_bytes", "pool_used_bytes",
        "draining", "weights_bytes_read",
    )
    @property
    def session(self) -> int:
        """By which coppicectl and the daemon's log know the connection."""
    @property
    def n_lanes(self) -> int:
        """Lanes that are open."""
    @property
    def n_seqs(self) -> int:
        """Sequences that are open."""
    @property
    def n_arenas(self) -> int:
        """Arenas, with the library's own."""
    @property
    def arena_bytes(self) -> int:
        """Of the arenas."""
    @property
    def n_entries(self) -> int:
        """Entries that have completed."""
    @property
    def n_decode_steps(self) -> int:
        """Decodes, and an engine's own decode steps, that have completed."""
    @property
    def tokens_matched(self) -> int:
        """Of prompts: found in the store, or waited for."""
    @property
    def tokens_computed(self) -> int:
        """Tokens whose K and V were computed."""
    @property
    def pool_bytes(self) -> int:
        """Of all connections: memory for KV."""
    @property
    def pool_used_bytes(self) -> int:
        """Of all connections: what of it is in use."""
    @property
    def draining(self) -> bool:
        """The daemon takes no new sequences."""
    @property
    def weights_bytes_read(self) -> int:
        """Read for its tokens; of a pass with others, its part by rows."""
