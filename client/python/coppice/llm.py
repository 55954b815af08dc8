"""A checkpoint that continues texts: coppice.LLM.

Weights and KV are the daemon's: eight processes that open the same checkpoint have them once.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence, TypeAlias

from ._coppice import Connection, Model, extremes
from ._errors import Canceled, Closed, Error
from ._models import load_model
from .generation.answer import Continuation, Piece, Writer
from .generation.checkpoint import Checkpoint
from .generation.engine import Engine
from .generation.progress import Bar
from .generation.request import Limits, leaders, sampling_of
from .generation.sampling import Sampling
from .generation.stream import Event, Stream
from .generation.tokenizer import tokenizer_of

Prompt: TypeAlias = "str | Sequence[int]"
Message: TypeAlias = "Mapping[str, Any]"

_BROKEN_OFF = "an exception in the middle of another call broke this off too: ask once more"


@dataclass
class Output:
    """What came of a prompt."""

    prompt: list[int]
    cached: int  # of its tokens: those that were there, computed by whomever
    continuations: list[Continuation]

    @property
    def text(self) -> str:
        """Of the first continuation."""
        return self.continuations[0].text

    @property
    def tokens(self) -> list[int]:
        return self.continuations[0].tokens


class LLM:
    """One thread uses it at a time.

    path: a checkpoint's folder. socket: the daemon's; None: $COPPICE_SOCKET, or the usual one.
    max_positions: of a sequence; 0: as many as the model was made for. progress: bars on stderr
    while weights load and long prompts are computed; None: where it is a terminal.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        socket: str | None = None,
        max_positions: int = 0,
        progress: bool | None = None,
    ) -> None:
        self._progress = progress
        self._checkpoint = Checkpoint(path)
        self.tokenizer = tokenizer_of(self._checkpoint)
        self._defaults = self._checkpoint.defaults()
        self._writers: dict[Stream, Writer] = {}
        self._connection = Connection(socket)
        try:
            self.model = self._load(max_positions)
            self._engine = self._new_engine()
        except BaseException:
            self._connection.close()
            raise
        eos = self._checkpoint.eos_ids()
        self._limits = Limits(self.model, eos)

    def _load(self, max_positions: int) -> Model:
        bar = Bar(f"loading {self._checkpoint.name}", self._progress)
        try:
            return load_model(
                self._connection,
                self._checkpoint.path,
                max_positions=max_positions,
                progress=lambda p: bar.show(p.n_done, p.n_bytes, "B"),
            )
        finally:
            bar.close()

    def _new_engine(self) -> Engine:
        return Engine(self._connection, self.model, self._take)

    def close(self) -> None:
        """Gives back all that it has of the daemon's. Twice is fine."""
        if not self._connection.closed:
            self._engine.close()
            self._connection.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is asked of it ----------------------------------------------------------------

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling: Sampling | None = None, **options: Any
    ) -> list[Output]:
        """Continues all prompts at once: texts, or lists of tokens. options: Sampling's fields."""
        sampling = self._sampling(sampling, options)
        prepared = [self._encode(prompt) for prompt in _several(prompts)]
        asked = [self._limits.streams(prompt, sampling) for prompt in prepared]
        streams = [stream for of in asked for stream in of]
        try:
            try:
                writers = [self._start(of, sampling) for of in asked]
                self._run(streams, [writer for of in writers for writer in of])
            finally:
                self._drop(streams)
        finally:
            self._drop(streams)  # a signal's handler may have raised in the first
        return [
            Output(prompt, first.cached, [writer.done for writer in of])
            for prompt, (first, *_), of in zip(prepared, asked, writers)
        ]

    def stream(
        self, prompt: Prompt, sampling: Sampling | None = None, **options: Any
    ) -> Iterator[Piece]:
        """Pieces of text as they come. An iterator that is dropped ends its sequences."""
        sampling = self._sampling(sampling, options)
        streams = self._limits.streams(self._encode(prompt), sampling)
        return self._pieces(streams, sampling)

    def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Output:
        """The model's answer to messages, by the checkpoint's chat template."""
        if isinstance(messages, str) or not all(isinstance(one, Mapping) for one in messages):
            raise TypeError(
                "messages are a list of objects such as {'role': 'user', 'content': TEXT}, not "
                f"{_short(messages)}"
            )
        sampling = self._sampling(sampling, options)
        prompt = self.tokenizer.chat(messages, tools)
        return self.generate([prompt], sampling.with_tools() if tools else sampling)[0]

    # ---- how it comes about -----------------------------------------------------------------

    def _sampling(self, sampling: Sampling | None, options: Mapping[str, Any]) -> Sampling:
        if sampling is None:
            return sampling_of(self._defaults, options)
        if not isinstance(sampling, Sampling):
            raise TypeError(f"sampling is a coppice.Sampling, not {_short(sampling)}")
        if options:
            raise ValueError(f"give {', '.join(options)} in the Sampling, or none of that")
        return sampling

    def _encode(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else _tokens(prompt)

    def _start(self, streams: list[Stream], sampling: Sampling) -> list[Writer]:
        if self._connection.closed:
            raise Closed(errno.EBADF, "the model was closed: open it anew")
        if self._engine.broken:
            self._renew_engine()
        writers = [Writer(self.tokenizer, sampling, i) for i in range(len(streams))]
        self._writers.update(zip(streams, writers))
        for leader in leaders(streams):
            self._engine.add(leader)
        return writers

    def _run(self, streams: list[Stream], writers: list[Writer]) -> None:
        bar = Bar("prompts", self._progress)
        try:
            while any(writer.done.finish is None for writer in writers):
                self._engine.turn()
                _check(writers)
                _show(bar, streams)
        finally:
            bar.close()

    def _pieces(self, streams: list[Stream], sampling: Sampling) -> Iterator[Piece]:
        try:
            try:
                yield from self._pieces_of(streams, self._start(streams, sampling))
            finally:
                self._drop(streams)
        finally:
            self._drop(streams)  # as in generate

    def _pieces_of(self, streams: list[Stream], writers: list[Writer]) -> Iterator[Piece]:
        bar = Bar("prompts", self._progress)
        try:
            while True:
                pieces = [piece for writer in writers for piece in writer.news()]
                if pieces:
                    bar.close()  # before what the caller writes
                yield from pieces
                _check(writers)
                if pieces:  # others may have turned the engine meanwhile
                    continue
                if all(writer.done.finish for writer in writers):
                    return
                self._engine.turn()
                _show(bar, streams)
        finally:
            bar.close()

    def _take(self, events: list[Event]) -> None:
        """The engine's news."""
        for event in events:
            writer = self._writers.get(event.stream)
            if writer is not None and writer.take(event) and writer.done.finish:
                event.stream.cancelled = True  # the engine would go on behind a stop text

    def _drop(self, streams: list[Stream]) -> None:
        """Nothing of them is left, however it ended. Twice is fine."""
        for stream in streams:
            stream.cancelled = True
            self._writers.pop(stream, None)
        while not self._engine.broken and self._engine.has(streams):
            if self._connection.closed:
                return
            self._engine.turn()
        if self._engine.broken and not self._connection.closed:
            self._break_off()

    def _break_off(self) -> None:
        """Of an engine that was broken off among its books: lanes go with all sequences, whatever
        the books say, and other streams that were under way are told so."""
        lost: Error = Canceled(errno.ECANCELED, _BROKEN_OFF)
        try:
            self._connection.stats()
        except Error as error:
            lost = error  # the daemon is gone
        self._take([Event(stream, error=lost) for stream in self._writers])
        self._engine.close(lost)
        with suppress(Error):  # who asks next is told why
            self._renew_engine()

    def _renew_engine(self) -> None:
        self._engine.close()
        self._engine = self._new_engine()


def _show(bar: Bar, streams: list[Stream]) -> None:
    """How far prompts are; nothing once all are there."""
    n_prompts = sum(stream.n_prompt for stream in streams)
    n_done = sum(min(stream.n_done, stream.n_prompt) for stream in streams)
    if n_done < n_prompts:
        bar.show(n_done, n_prompts, "tokens")
    else:
        bar.close()


def _check(writers: list[Writer]) -> None:
    for writer in writers:
        writer.check()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tokens(prompt: Sequence[int]) -> list[int]:
    """Also of numpy's or torch's."""
    try:
        made = list(prompt)
        return made if extremes(made) else [index(token) for token in made]
    except TypeError:
        raise TypeError(f"a prompt is a text, or a list of tokens, not {_short(prompt)}") from None


def _several(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """A single one may be given as it is."""
    if isinstance(prompts, str):
        return [prompts]
    try:
        many = prompts if hasattr(prompts, "__len__") else list(prompts)
        first: Any = next(iter(many), None)
    except TypeError:
        raise TypeError(f"prompts are texts, or lists of tokens, not {_short(prompts)}") from None
    single = hasattr(first, "__index__") and getattr(first, "ndim", 0) == 0
    return [many] if single else many  # type: ignore[list-item, return-value]
