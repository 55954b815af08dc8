"""The extension over libcoppice. Import its names from `coppice`.

Whatever blocks releases the interpreter's lock, and ends early where a signal's handler raises.
Durations are seconds; None stands for no limit. What fails raises a subclass of `coppice.Error`.
"""

from collections.abc import Iterable, Sequence as Items
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, final

from typing_extensions import CapsuleType, Self

Dtype: TypeAlias = Literal["float32", "float16", "bfloat16", "uint8"]
Memory: TypeAlias = Literal["host", "device"]
Tokens: TypeAlias = Iterable[int]
"""Token ids: a list, a tuple, an array of numpy's or torch's, whatever yields integers."""

class DLPack(Protocol):
    """What torch, numpy, jax and cupy call an array."""

    def __dlpack__(self, *, stream: Any = None) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

Array: TypeAlias = "Tensor | DLPack"
Stream: TypeAlias = Any
"""An integer (cudaStream_t), or an object with `cuda_stream` (torch) or `ptr` (cupy)."""

class Match(NamedTuple):
    """How much of a prompt is there: `cached` tokens are; `pending` more are on their way.

    `claimed`: what is not cached is ours to compute, and others may wait for it.
    """

    cached: int
    pending: int
    claimed: bool

class State(NamedTuple):
    """`n_tokens` that the sequence has, and `n_live` of an extension or draft under way."""

    n_tokens: int
    n_live: int

class Result(NamedTuple):
    """How a ticket ended: status 0 or -errno; `cause`: the ticket that failed first, or 0.

    `attended` and `mass` are of sparse prefill: shares of the path and of its attention.
    """

    ticket: int
    status: int
    value: int
    attended: float
    mass: float
    cause: int

class Row(NamedTuple):
    """What comes of a token.

    `ids`: the likeliest next tokens, likeliest first; `logprobs`: theirs. `lse`: the log of the
    sum of exp(logit), so that a logit is logprob + lse. `score`: the log-probability of the
    next of the tokens given (`score=True`; nan of the last one). `logits` (of the vocabulary)
    and `hidden` (of the final norm) lie in memory that the daemon wrote; None: not asked for.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    lse: float
    score: float
    logits: Tensor | None
    hidden: Tensor | None

class Progress(NamedTuple):
    """Of weights on their way. n_bytes 0: not known yet."""

    n_bytes: int
    n_done: int

class TensorInfo(NamedTuple):
    """A tensor of weights: its number, name, type and shape, and where in Weights.map it lies."""

    number: int
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    offset: int

class Stats(NamedTuple):
    """What the daemon has counted of a connection; see struct coppice_stats."""

    session: int
    n_lanes: int
    n_seqs: int
    n_arenas: int
    arena_bytes: int
    n_entries: int
    n_decode_steps: int
    tokens_matched: int
    tokens_computed: int
    pool_bytes: int
    pool_used_bytes: int
    draining: bool
    weights_bytes_read: int

def extremes(tokens: object) -> tuple[int, int] | None:
    """The least and the most; None where it is no list, or empty, or has anything but integers of
    64 bits: bool is none. Of a long prompt in a tenth of the time that min and max take."""

def version() -> str:
    """Of libcoppice, which this package carries."""

@final
class Connection:
    """A session with the daemon. Any thread may use it.

    path None: $COPPICE_SOCKET, else /run/coppice/coppiced.sock. Blocks until the daemon has
    answered. Raises NoDaemon, VersionMismatch, LimitReached, TimedOut.
    """

    def __new__(cls, path: str | None = None, timeout: float | None = 60.0) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Ends the session, with its lanes, sequences and arenas; arrays in arenas stay valid.

        Where another thread is in a call on the connection, its end is the session's.
        """
    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int:
        """Polls readable when a Sequence.answer may have come; not to be read or closed."""
    def stats(self) -> Stats:
        """Blocks for two messages and their answers."""
    def unpin(self, pin: int) -> None:
        """Ends a pin (Sequence.pin)."""
    def lane(self, *, pollable: bool = False) -> Lane:
        """Blocks for messages. pollable: it has a descriptor, as coppice.aio wants."""
    def arena(
        self, n_bytes: int, *, memory: Memory = "host", device: bytes | None = None
    ) -> Arena:
        """Memory that the daemon sees too. device: the UUID of one of its GPUs (16 bytes)."""
    def weights(self, files: Items[int]) -> Weights:
        """Descriptors of safetensors files, borrowed. See also coppice.open_weights."""
    def model(
        self,
        name: str,
        *,
        n_layers: int,
        n_q_heads: int,
        n_kv_heads: int,
        head_dim: int,
        dtype: str = "float32",
        page_tokens: int = 0,
        scale: float = 0.0,
        weights_hash: int = 0,
        first_kv_head: int = 0,
        own_kv_heads: int = 0,
    ) -> Model:
        """A model whose layers the caller computes: KV of this shape, shared by name."""
    def program(
        self,
        weights: Weights,
        config: str | bytes,
        *,
        max_positions: int = 0,
        dtype: str | None = None,
        page_tokens: int = 0,
    ) -> Model:
        """A model whose layers the daemon computes. config: a config.json's path, or its bytes.

        Raises Unsupported, whose sentence names the key of the config; NotFound: a tensor is
        missing. dtype None: what the config says.
        """

@final
class Weights:
    """Tensors of safetensors files, held by the daemon once for all processes of a user."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Models that were made of them keep what they need."""
    def wait(self, timeout: float | None = None) -> Progress:
        """Until they are there. Raises TimedOut: not yet; or why they cannot be had."""
    def progress(self) -> Progress:
        """How far they are. Blocks for a message. Raises why they cannot be had."""
    @property
    def ready(self) -> bool:
        """Whether a wait or progress has seen them there."""
    def __len__(self) -> int: ...
    def map(self, timeout: float | None = None) -> Arena:
        """The memory that they lie in, for kernels of one's own: one copy for all processes.

        map().tensor(info.shape, info.dtype, offset=info.offset) is a tensor in it. It stays beyond
        the weights, and is no memory for steps. On a CPU what is written there is this process's
        own; on a GPU it is what all who have the weights read from then on, all of one user.
        Blocks. Raises TimedOut: not yet; Unsupported, LimitReached, NoRoom, NoDevice.
        """
    def tensor(self, number: int) -> TensorInfo: ...
    def find(self, name: str) -> int:
        """A tensor's number. Raises NotFound."""

@final
class Model:
    """An open model. n_vocab, hidden and max_positions are 0 where the caller computes layers."""

    @property
    def connection(self) -> Connection: ...
    @property
    def number(self) -> int: ...
    @property
    def is_program(self) -> bool: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_q_heads(self) -> int: ...
    @property
    def n_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def page_tokens(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def max_positions(self) -> int: ...

@final
class Arena:
    """Memory that both sides see. It stays mapped for as long as a tensor of it is referred to."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Gives it back: steps may not name it any more. Arrays in it stay valid."""
    @property
    def closed(self) -> bool: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def memory(self) -> Memory: ...
    def tensor(
        self, shape: int | tuple[int, ...], dtype: Dtype = "float32", *, offset: int | None = None
    ) -> Tensor:
        """A piece that nobody else has; at offset where that is given. Raises NoRoom."""
    def reset(self) -> None:
        """All pieces are free again; nobody may use one any more."""

@final
class Tensor:
    """A dense array in an arena.

    torch.from_dlpack(t), numpy.asarray(t) (host memory), cupy.asarray(t): the same memory, which
    the array keeps alive.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Dtype: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Of host memory; bfloat16 has none."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Of device memory; bfloat16 has none."""
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def tobytes(self) -> bytes:
        """A copy. Host memory alone."""
    def write(self, data: bytes) -> None:
        """From its begin on. Host memory alone."""
    def tolist(self) -> list[Any]:
        """Its elements, flat. Host memory alone."""

@final
class Part:
    """One sequence's part of steps: its new tokens' rows in one layer.

    q and o: [n_new, n_q_heads, head_dim] of the model's dtype, in arenas; k and v: [n_new,
    n_kv_heads, head_dim]; lse: float32 [n_new, n_q_heads], the log of the sum of exp(scores).
    Rows may have a stride. o None: append only. A Part may be used for all layers and many
    steps; it refers to its arrays. Raises Invalid: the sentence names what is wrong.
    """

    def __new__(
        cls,
        seq: Sequence,
        q: Array | None,
        k: Array,
        v: Array,
        o: Array | None = None,
        lse: Array | None = None,
    ) -> Self: ...
    @property
    def seq(self) -> Sequence: ...
    @property
    def n_new(self) -> int: ...

Entry: TypeAlias = (
    "tuple[Sequence, Tokens] | tuple[Sequence, Tokens, int] "
    "| tuple[Sequence, Tokens, int, Items[int] | None]"
)

@final
class Lane:
    """An ordered timeline of entries, each with a ticket.

    Threads may share a lane: calls on it come one after another, and one that blocks holds the
    others up. So a lane a thread is best.
    """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Frees it and closes its sequences."""
    @property
    def closed(self) -> bool: ...
    @property
    def connection(self) -> Connection: ...
    def fileno(self) -> int:
        """Of a pollable lane: readable when something has completed since arm. Else -1."""
    def arm(self) -> bool:
        """Drains the descriptor and asks for its next ring; then poll once more.

        False: a thread is in a call on the lane. Try again soon.
        """
    def open(self, model: Model, tokens: Tokens, *, salt: int = 0) -> Sequence:
        """A sequence on a prompt of 1 token or more. Blocks for a message and its answer.

        Raises LimitReached, TooLong, NoRoom, Draining.
        """
    def open_many(
        self, prompts: Items[tuple[Model, Tokens] | tuple[Model, Tokens, int]]
    ) -> list[Sequence]:
        """All or none; their messages are on their way together. (model, tokens, salt)."""
    def decode(
        self,
        parts: Items[Entry],
        *,
        top: int = 1,
        score: bool = False,
        logits: bool = False,
        hidden: bool = False,
    ) -> Decode:
        """Runs new tokens of sequences through their program. Does not block.

        A part: (sequence, tokens[, n_rows[, parents]]): of the last n_rows tokens something is
        wanted; 1 if not given. parents: of a draft, as Sequence.draft has them, of all parts or
        none; Sequence.accept says then which tokens stay. top: how many of the likeliest tokens,
        up to 64. Raises LaneFull: wait for an earlier one.
        """
    def step(
        self, layer: int, parts: Part | Items[Part], *, stream: Stream | None = None
    ) -> int:
        """One layer of sequences of one model; its ticket. Does not block.

        stream: q, k and v are what the CUDA stream has written when it comes to this.
        """
    def nop(self) -> int:
        """Completes behind everything submitted before."""
    def wait(self, ticket: int, timeout: float | None = None) -> None:
        """Until the ticket has completed; raises how it failed. Blocks."""
    def wait_on_stream(self, ticket: int, stream: Stream) -> None:
        """What is put on the stream after this runs once the ticket has ended."""
    def poll(self, ticket: int) -> Result | None:
        """None: it is in flight still, or a thread is in a call on the lane. Does not block."""
    def explain(self, ticket: int) -> str:
        """The sentence of a ticket that failed."""

@final
class Sequence:
    """Tokens, of which the daemon has KV; belongs to a lane. Made by Lane.open and fork."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Gives its pages back. Blocks for a message."""
    @property
    def closed(self) -> bool: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def model(self) -> Model: ...
    @property
    def match(self) -> Match:
        """What is there of the prompt, as last heard of."""
    @property
    def cached(self) -> int:
        """match.cached: skip so many tokens."""
    def wait(self, timeout: float | None = None) -> Match:
        """Until nothing of the prompt is pending any more. Blocks. Raises TimedOut."""
    def ask(self, timeout: float | None = None) -> None:
        """As wait, without blocking: the answer comes at Connection.fileno."""
    def answer(self) -> Match | None:
        """None: not yet. Raises TimedOut, and Invalid where nothing was asked. Does not block."""
    def state(self) -> State:
        """As the daemon counts when it comes to the question. Blocks for two messages."""
    def decode(
        self,
        tokens: Tokens,
        n_rows: int = 1,
        *,
        top: int = 1,
        score: bool = False,
        logits: bool = False,
        hidden: bool = False,
        parents: Items[int] | None = None,
    ) -> Decode:
        """Lane.decode of this sequence alone."""
    def extend(self, tokens: Tokens) -> int:
        """The next tokens, whose K and V come with the steps that follow; a ticket."""
    def draft(self, tokens: Tokens, parents: Items[int] | None = None) -> int:
        """Tokens on trial; parents None: a chain; -1: the sequence itself. A ticket."""
    def accept(self, indices: Items[int]) -> int:
        """Tokens of the draft that stay, a path; none: the draft goes. A ticket."""
    def trim(self, n_tokens: int) -> int:
        """Keeps the first n_tokens; also clears what failed. A ticket."""
    def fork(self) -> Sequence:
        """A second sequence at the same place. Blocks for what is in front of it."""
    def pin(self, seconds: float) -> int:
        """Keeps its tokens from eviction, also after its end; the pin's number. Raises Invalid:
        for longer than the daemon's max_pin_ms."""
    def sparse(
        self,
        *,
        tau: float = 0.0,
        stride: int = 0,
        block_tokens: int = 0,
        sink_blocks: int = 0,
        recent_blocks: int = 0,
    ) -> int:
        """Prefill that attends to part of its path; see struct coppice_sparse. A ticket."""

@final
class Decode:
    """Tokens on their way through a program (Lane.decode)."""

    @property
    def lane(self) -> Lane: ...
    @property
    def ticket(self) -> int: ...
    def done(self) -> bool:
        """False: not yet, or a thread is in a call on the lane. Does not block."""
    @property
    def failed(self) -> bool:
        """Whether wait or done has seen it fail; then wait, which raises how, asks the lane."""
    def wait(self, timeout: float | None = None) -> list[Row]:
        """Rows of what is wanted, in order of parts and tokens. Raises how it failed."""
    def cancel(self) -> None:
        """Ends it before its next chunk, from any thread: wait raises with ECANCELED then.

        What was published stays, and its sequences may go on. No error where it has ended.
        """

@final
class Capture:
    """Steps in a CUDA graph that is launched again and again.

    While the stream is captured, step and wait take the place of the lane's; each launch of the
    graph needs one submit, and extensions before that.
    """

    def __new__(cls, lane: Lane, stream: Stream) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """The graph must not be launched any more and its launches be over."""
    def step(self, layer: int, parts: Part | Items[Part], stream: Stream) -> None: ...
    def wait(self, stream: Stream) -> None: ...
    def submit(self, seqs: Items[Sequence] | None = None) -> int:
        """For one launch; the last step's ticket. seqs None: those captured."""
