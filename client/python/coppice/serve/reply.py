"""Answers in the words of OpenAI's API. A token of a stream is one line, from what does not change
between two of them and little more."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from typing import Any, Sequence

from ..generation.answer import Continuation, Piece
from ..generation.sampling import Logprob, Sampling
from ..generation.tokenizer import Decoder, Tokenizer
from .job import Usage

DONE = "data: [DONE]\n\n"
_dumps = json.dumps


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


class Reply(ABC):
    """Of one request. token_ids: whether tokens are told beside the text."""

    kind: str
    kind_of_chunk: str
    prefix: str

    def __init__(
        self, model: str, tokenizer: Tokenizer, token_ids: bool, sampling: Sampling
    ) -> None:
        self._tokenizer, self._skip_special = tokenizer, sampling.skips_special
        self._token_ids, self._logprobs = token_ids, sampling.logprobs is not None
        self._head = {
            "id": f"{self.prefix}{uuid.uuid4().hex}",
            "object": self.kind_of_chunk,
            "created": int(time.time()),
            "model": model,
        }
        self._line = f"data: {_dumps(self._head)[:-1]}, "
        self._begun: set[int] = set()

    # ---- whole ------------------------------------------------------------------------------

    def whole(self, done: Sequence[Continuation], usage: Usage) -> dict[str, Any]:
        choices = [self._choice(index, one) for index, one in enumerate(done)]
        head = {**self._head, "object": self.kind}
        return {**head, "choices": choices, "usage": usage_object(usage)}

    def _choice(self, index: int, one: Continuation) -> dict[str, Any]:
        choice = {"index": index, **self._said(one), "finish_reason": one.finish}
        choice["logprobs"] = self._logprobs_of(index, one.logprobs) if self._logprobs else None
        if self._token_ids:
            choice["token_ids"] = one.tokens
        return choice

    # ---- streamed ---------------------------------------------------------------------------

    def chunk(self, piece: Piece) -> str:
        finish = f'"{piece.finish}"' if piece.finish else "null"
        ids = f', "token_ids": {_dumps(piece.tokens)}' if self._token_ids else ""
        logprobs = self._logprobs_line(piece) if self._logprobs else "null"
        return (
            f'{self._line}"choices": [{{"index": {piece.index}, {self._delta(piece)}, '
            f'"logprobs": {logprobs}, "finish_reason": {finish}{ids}}}]}}\n\n'
        )

    def _logprobs_line(self, piece: Piece) -> str:
        return _dumps(self._logprobs_of(piece.index, piece.logprobs))

    def usage_chunk(self, usage: Usage) -> str:
        return f'{self._line}"choices": [], "usage": {_dumps(usage_object(usage))}}}\n\n'

    # ---- what differs -----------------------------------------------------------------------

    @abstractmethod
    def _said(self, one: Continuation) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, piece: Piece) -> str: ...

    @abstractmethod
    def _logprobs_of(self, index: int, logprobs: Sequence[Logprob]) -> dict[str, Any]:
        """Of tokens that come next in a choice."""

    def _name(self, token: int) -> str:
        """Its text; a part of a character has a name of its own."""
        text = self._tokenizer.token_text(token)
        if "\ufffd" not in text:
            return text
        raw = self._tokenizer.token_bytes(token)
        return text if raw is None else "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class ChatReply(Reply):
    kind, kind_of_chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def _said(self, one: Continuation) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": one.text, "refusal": None}}

    def _delta(self, piece: Piece) -> str:
        role = "" if piece.index in self._begun else '"role": "assistant", '
        self._begun.add(piece.index)
        return f'"delta": {{{role}"content": {_dumps(piece.text)}}}'

    def _logprobs_of(self, index: int, logprobs: Sequence[Logprob]) -> dict[str, Any]:
        return {"content": [self._entry(one) for one in logprobs], "refusal": None}

    def _entry(self, one: Logprob) -> dict[str, Any]:
        top = [self._token(*pair) for pair in one.top]
        return {**self._token(one.token, one.logprob), "top_logprobs": top}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(token)
        told = None if raw is None else list(raw)
        return {"token": self._name(token), "logprob": logprob, "bytes": told}


class TextReply(Reply):
    kind, kind_of_chunk, prefix = "text_completion", "text_completion", "cmpl-"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._decoders: dict[int, Decoder] = {}  # of choices
        self._offsets: dict[int, int] = {}

    def _said(self, one: Continuation) -> dict[str, Any]:
        return {"text": one.text}

    def _delta(self, piece: Piece) -> str:
        return f'"text": {_dumps(piece.text)}'

    def _offset(self, index: int, token: int) -> int:
        """In the text of a choice, where its next token begins."""
        if index not in self._decoders:
            self._decoders[index] = self._tokenizer.decoder(self._skip_special)
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + len(self._decoders[index].feed(token))
        return offset

    def _logprobs_of(self, index: int, logprobs: Sequence[Logprob]) -> dict[str, Any]:
        return {
            "tokens": [self._name(one.token) for one in logprobs],
            "token_logprobs": [one.logprob for one in logprobs],
            "top_logprobs": [
                {self._name(i): value for i, value in one.top} for one in logprobs
            ],
            "text_offset": [self._offset(index, one.token) for one in logprobs],
        }
