"""The extension over libcoppice. Import its names from `coppice`.

Whatever blocks releases the interpreter's lock. Durations are seconds; None stands for no limit.
What fails raises a subclass of `coppice.Error`.

Where a signal's handler raises, Ctrl-C's say, `Lane.wait`, `Decode.wait` and `Sequence.wait` end
early, also if the daemon stands still: after 0.2 s, `Sequence.wait` after 2.2 s. `Weights.wait` and
`Weights.map` end early while there is loading or copying to wait for. Whatever else blocks is a
message to the daemon, and ends with its answer, or with the daemon: only then the handler raises,
and what the call has made is given back. `Connection()` ends with its timeout too. Nor does a call
end early while another thread has its lane.

The extension's build reads this file and _records.pyi: what stands here is what help() says.
"""

from collections.abc import Iterable, Sequence as Items
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import CapsuleType, Self

from ._records import Match as Match
from ._records import Progress as Progress
from ._records import Result as Result
from ._records import Row as Row
from ._records import State as State
from ._records import Stats as Stats
from ._records import TensorInfo as TensorInfo

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

def extremes(tokens: object, /) -> tuple[int, int] | None:
    """The least and the most of a list of tokens.

    None where it is no list, or empty, or has anything but integers of 64 bits: bool is none. Of a
    long prompt in a tenth of the time that min and max take.
    """

def version() -> str:
    """The version of libcoppice, which this package carries."""

@final
class Connection:
    """A session with the daemon. Any thread may use it.

    path None: $COPPICE_SOCKET, else /run/coppice/coppiced.sock. Blocks until the daemon has
    answered. Raises NoDaemon, VersionMismatch, LimitReached, TimedOut.
    """

    def __new__(cls, path: str | None = None, timeout: float | None = 60.0) -> Self: ...
    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Ends the session, with its lanes, sequences and arenas; arrays in arenas stay valid.

        Where another thread is in a call on the connection, its end is the session's.
        """
    @property
    def closed(self) -> bool:
        """Whether close has been called."""
    def fileno(self) -> int:
        """Polls readable when a Sequence.answer may have come; not to be read or closed."""
    def stats(self) -> Stats:
        """What the daemon has counted. Blocks for two messages and their answers."""
    def unpin(self, pin: int, /) -> None:
        """Ends a pin (Sequence.pin). Blocks for a message. Raises NotFound."""
    def lane(self, *, pollable: bool = False) -> Lane:
        """A timeline of its own. pollable: it has a descriptor, as coppice.aio wants. Blocks for
        messages. Raises LimitReached."""
    def arena(
        self, n_bytes: int, *, memory: Memory = "host", device: bytes | None = None
    ) -> Arena:
        """Memory that the daemon sees too. device: the UUID of one of its GPUs (16 bytes). Blocks
        for a message. Raises NoRoom, NoDevice."""
    def weights(self, files: Items[int]) -> Weights:
        """The tensors of safetensors files, by their descriptors, which are borrowed. Blocks for a
        message, and for a minute where many are being loaded. See also coppice.open_weights."""
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
        """A model whose layers the caller computes: KV of this shape, shared by name. scale: of
        the scores, 0: 1 / sqrt(head_dim); page_tokens: 16, 32, 64, 0: the daemon's choice;
        weights_hash: of whatever else changes K and V; own_kv_heads from first_kv_head on: those
        of a rank, 0: all. Blocks for a message. Raises Invalid."""
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
        missing; Busy: the weights have not been waited for. dtype None: what the config says.
        Blocks for messages.
        """

@final
class Weights:
    """Tensors of safetensors files, held by the daemon once for all processes of a user."""

    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Gives them back; models that were made of them keep what they need. Blocks for a message,
        unless another thread waits for them: then they end with its call."""
    def wait(self, timeout: float | None = None) -> Progress:
        """Until they are there. Raises TimedOut: not yet; or why they cannot be had."""
    def progress(self) -> Progress:
        """How far they are. Blocks for a message. Raises why they cannot be had."""
    @property
    def ready(self) -> bool:
        """Whether a wait or progress has seen them there."""
    def __len__(self) -> int:
        """Tensors that there are; 0 until they have been waited for."""
    def map(self, timeout: float | None = None) -> Arena:
        """The memory that they lie in, for kernels of one's own: one copy for all processes.

        map().tensor(info.shape, info.dtype, offset=info.offset) is a tensor in it. It stays beyond
        the weights, and is no memory for steps. On a CPU what is written there is this process's
        own; on a GPU it is what all who have the weights read from then on, all of one user.
        Blocks. Raises TimedOut: not yet; Unsupported, LimitReached, NoRoom, NoDevice.
        """
    def tensor(self, number: int, /) -> TensorInfo:
        """Of that number, in order of names. Raises Invalid: none is, or nobody has waited."""
    def find(self, name: str, /) -> int:
        """A tensor's number. Raises NotFound, also where nobody has waited for them."""

@final
class Model:
    """An open model. n_vocab, hidden and max_positions are 0 where the caller computes layers."""

    @property
    def connection(self) -> Connection:
        """Whose it is."""
    @property
    def number(self) -> int:
        """The library's number of it in its connection."""
    @property
    def is_program(self) -> bool:
        """Whether the daemon computes its layers (Connection.program)."""
    @property
    def n_layers(self) -> int:
        """Layers, each with K and V."""
    @property
    def n_q_heads(self) -> int:
        """Query heads of a row; of a rank, its own."""
    @property
    def n_kv_heads(self) -> int:
        """Heads of a row of K and V; of a rank, its own."""
    @property
    def head_dim(self) -> int:
        """Elements of a head."""
    @property
    def dtype(self) -> str:
        """The type of q, k, v and o."""
    @property
    def page_tokens(self) -> int:
        """Tokens of a page of KV."""
    @property
    def page_bytes(self) -> int:
        """Bytes of a page, of all layers."""
    @property
    def n_vocab(self) -> int:
        """Tokens that there are; 0 where the caller computes layers."""
    @property
    def hidden(self) -> int:
        """Elements of a hidden row; 0 where the caller computes layers."""
    @property
    def max_positions(self) -> int:
        """Tokens of a sequence at most; 0 where the caller computes layers."""

@final
class Arena:
    """Memory that both sides see. It stays mapped for as long as a tensor of it is referred to."""

    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Gives it back: steps may not name it any more. Arrays in it stay valid. Blocks for a
        message."""
    @property
    def closed(self) -> bool:
        """Whether steps may not name it any more."""
    @property
    def address(self) -> int:
        """Where it begins, in this process or on its GPU."""
    @property
    def nbytes(self) -> int:
        """Its size, rounded up as the library has it."""
    @property
    def memory(self) -> Memory:
        """Whose memory it is."""
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
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension, 1 to 4 of them."""
    @property
    def dtype(self) -> Dtype:
        """The type of its elements."""
    @property
    def nbytes(self) -> int:
        """Of all elements."""
    @property
    def address(self) -> int:
        """Of the first element, in this process or on its GPU."""
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
    ) -> CapsuleType:
        """Its memory, for from_dlpack of any package. It is not copied: copy=True is refused."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device, and its number."""
    def tobytes(self) -> bytes:
        """A copy. Host memory alone."""
    def write(self, data: bytes, /) -> None:
        """From its begin on. Host memory alone. Raises Invalid: more bytes than it has."""
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
    def seq(self) -> Sequence:
        """Whose rows they are."""
    @property
    def n_new(self) -> int:
        """Rows: new tokens."""

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

    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Frees it and closes its sequences. Blocks for messages, and for a thread that is in a
        call on it."""
    @property
    def closed(self) -> bool:
        """Whether it, or its connection, was closed."""
    @property
    def connection(self) -> Connection:
        """Whose it is."""
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
        self, prompts: Items[tuple[Model, Tokens] | tuple[Model, Tokens, int]], /
    ) -> list[Sequence]:
        """Sequences on prompts (model, tokens[, salt]), all or none; their messages are on their
        way together. Blocks, and raises, as open."""
    def decode(
        self,
        parts: Items[Entry],
        *,
        top: int = 1,
        score: bool = False,
        logits: bool = False,
        hidden: bool = False,
    ) -> Decode:
        """Runs new tokens of sequences through their program.

        A part: (sequence, tokens[, n_rows[, parents]]): of the last n_rows tokens something is
        wanted; 1 if not given. parents: of a draft, as Sequence.draft has them, of all parts or
        none; Sequence.accept says then which tokens stay. top: how many of the likeliest tokens,
        up to 64. Does not block, but for a message where rows need new memory, as the first do.
        Raises LaneFull: wait for an earlier one.
        """
    def step(
        self, layer: int, parts: Part | Items[Part], /, *, stream: Stream | None = None
    ) -> int:
        """One layer of sequences of one model; its ticket. Does not block.

        stream: q, k and v are what the CUDA stream has written when it comes to this.
        """
    def nop(self) -> int:
        """An entry that completes behind everything submitted before; its ticket. Does not
        block."""
    def wait(self, ticket: int, timeout: float | None = None) -> None:
        """Until the ticket has completed; raises how it failed. Blocks."""
    def wait_on_stream(self, ticket: int, stream: Stream, /) -> None:
        """What is put on the stream after this runs once the ticket has ended."""
    def poll(self, ticket: int, /) -> Result | None:
        """None: it is in flight still, or a thread is in a call on the lane. Does not block."""
    def explain(self, ticket: int, /) -> str:
        """The sentence of a ticket that failed."""

@final
class Sequence:
    """Tokens, of which the daemon has KV; belongs to a lane. Made by Lane.open and fork."""

    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Gives its pages back. Blocks for a message, unless a thread is in a call on the lane:
        then it is closed as that leaves."""
    @property
    def closed(self) -> bool:
        """Whether it, its lane or its connection was closed."""
    @property
    def lane(self) -> Lane:
        """On which its entries are."""
    @property
    def model(self) -> Model:
        """Of what its KV is."""
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
        """What it has, as the daemon counts when it comes to the question. Blocks for two
        messages."""
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
    def extend(self, tokens: Tokens, /) -> int:
        """The next tokens, whose K and V come with the steps that follow; a ticket."""
    def draft(self, tokens: Tokens, parents: Items[int] | None = None) -> int:
        """Tokens on trial; parents None: a chain; -1: the sequence itself. A ticket."""
    def accept(self, indices: Items[int], /) -> int:
        """Tokens of the draft that stay, a path; none: the draft goes. A ticket."""
    def trim(self, n_tokens: int, /) -> int:
        """Keeps the first n_tokens; also clears what failed. A ticket."""
    def fork(self) -> Sequence:
        """A second sequence at the same place. Blocks for what is in front of it. Raises Busy: it
        has live tokens; LimitReached, Draining."""
    def pin(self, seconds: float, /) -> int:
        """Keeps its tokens from eviction, also after its end; the pin's number. Blocks for a
        message. Raises Invalid: for longer than the daemon's max_pin_ms; LimitReached, NoRoom."""
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
    def lane(self) -> Lane:
        """On which it is."""
    @property
    def ticket(self) -> int:
        """Its number on the lane."""
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
    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
        /,
    ) -> None:
        """Calls close."""
    def close(self) -> None:
        """Frees it. The graph must not be launched any more and its launches be over."""
    def step(self, layer: int, parts: Part | Items[Part], stream: Stream) -> None:
        """One layer, as Lane.step; its parts and their arrays are kept. Does not block."""
    def wait(self, stream: Stream, /) -> None:
        """What is captured after this runs once the step before it has ended, of each launch."""
    def submit(self, seqs: Items[Sequence] | None = None) -> int:
        """For one launch; the last step's ticket. seqs None: those captured."""
