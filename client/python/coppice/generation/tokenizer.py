"""A checkpoint's tokenizer and chat template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, Protocol, Sequence

from .._needs import need
from .checkpoint import Checkpoint

if TYPE_CHECKING:
    from .template import ChatTemplate


class Decoder(Protocol):
    """The text of a continuation, token by token."""

    def feed(self, token: int) -> str:
        """What this token completes; "" where a character is not whole yet."""

    def rest(self) -> str:
        """What was not whole at the end."""


class Tokenizer(Protocol):
    has_text: bool

    def encode(self, text: str, special: bool = True) -> list[int]:
        """special: with what the model wants around a text, as a first token."""

    def decoder(self, skip_special: bool = True) -> Decoder:
        """skip_special: tokens such as markers have no text."""

    def token_text(self, token: int) -> str: ...

    def token_bytes(self, token: int) -> bytes | None:
        """Of its text, also where it is a part of a character; None: not known."""

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> list[int]:
        """The tokens of a prompt at which the model answers."""


class _NoDecoder:
    def feed(self, token: int) -> str:
        return ""

    def rest(self) -> str:
        return ""


class NoTokenizer:
    """Of a checkpoint that has none: prompts are tokens, and continuations have no text."""

    has_text = False

    def encode(self, text: str, special: bool = True) -> list[int]:
        raise ValueError("the model has no tokenizer.json: give prompts as lists of tokens")

    def decoder(self, skip_special: bool = True) -> Decoder:
        return _NoDecoder()

    def token_text(self, token: int) -> str:
        return f"token_id:{token}"

    def token_bytes(self, token: int) -> bytes | None:
        return None

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> list[int]:
        raise ValueError("the model has no tokenizer.json: give prompts as lists of tokens")


_ANCHORS = ("a", ".", "0")


def anchor_of(tokenizer: Any) -> int | None:
    """A token behind which others are decoded as in the middle of a text: decoders may take the
    space from the first one. None: there is none."""
    for text in _ANCHORS:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        if ids and tokenizer.decode(ids[-1:]).endswith(text):
            return ids[-1]
    return None


class Anchored:
    """Decodes tokens as in the middle of a text."""

    def __init__(self, tokenizer: Any) -> None:
        anchor = anchor_of(tokenizer)
        self._tokenizer = tokenizer
        self.before = [] if anchor is None else [anchor]
        self._text = str(tokenizer.decode(self.before)) if self.before else ""

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        text = self._tokenizer.decode(self.before + ids, skip_special_tokens=skip_special)
        return str(text).removeprefix(self._text)


class StreamDecoder:
    def __init__(
        self, tokenizer: Any, anchored: Anchored | None = None, skip_special: bool = True
    ) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._anchored = anchored or Anchored(tokenizer)
        self._held: list[int] = []
        self._begin()

    def _begin(self) -> None:
        from tokenizers.decoders import DecodeStream

        self._stream = DecodeStream(skip_special_tokens=self._skip_special)
        for token in self._anchored.before:
            self._stream.step(self._tokenizer, token)

    def feed(self, token: int) -> str:
        try:
            text: str | None = self._stream.step(self._tokenizer, token)
        except Exception:  # "Invalid prefix encountered": what came before reads otherwise now
            self._begin()
            self._held.append(token)
            return self.rest()
        if text is None:
            self._held.append(token)
            return ""
        self._held.clear()
        return text

    def rest(self) -> str:
        held, self._held = self._held, []
        return self._anchored.decode(held, self._skip_special) if held else ""


def _byte_letters() -> dict[str, int]:
    """The byte that each letter of byte-level tokenizers stands for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    return letters | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTES = _byte_letters()


def _raw(name: str) -> bytes | None:
    """Of a token that is no text: a byte by its number, or letters that stand for bytes."""
    if fallback := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name):
        return bytes.fromhex(fallback[1])
    known = all(letter in _BYTES for letter in name)
    return bytes(_BYTES[letter] for letter in name) if known else None


_LONE = re.compile("[\ud800-\udfff]")


def lone_surrogate(text: str) -> re.Match[str] | None:
    """Half of a pair of surrogates, which JSON can write, and UTF-8 cannot."""
    return None if text.isascii() else _LONE.search(text)


class HubTokenizer:
    """tokenizer.json, by the library `tokenizers`."""

    has_text = True

    def __init__(self, checkpoint: Checkpoint) -> None:
        need("'coppice[llm]'", "tokenizers", "jinja2", "numpy")
        from tokenizers import Tokenizer as Rust

        self._rust = Rust.from_file(str(checkpoint.tokenizer_path()))
        self._rust.no_truncation()
        self._rust.no_padding()
        self._anchored = Anchored(self._rust)
        self._template = _template(checkpoint)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """In a batch of one, which lets other threads of Python run meanwhile; encode does not."""
        if lone_surrogate(text):
            raise ValueError("the text is no Unicode: a part of it is half a character (U+D800 on)")
        [encoding] = self._rust.encode_batch_fast([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def decoder(self, skip_special: bool = True) -> Decoder:
        return StreamDecoder(self._rust, self._anchored, skip_special)

    def token_text(self, token: int) -> str:
        return self._anchored.decode([token], skip_special=False)

    def token_bytes(self, token: int) -> bytes | None:
        text = self.token_text(token)
        return text.encode() if "\ufffd" not in text else _raw(self._rust.id_to_token(token) or "")

    def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> list[int]:
        if self._template is None:
            raise ValueError("the model has no chat template: give it prompts, not messages")
        return self.encode(self._template.render(messages, tools), special=False)


def _template(checkpoint: Checkpoint) -> ChatTemplate | None:
    source = checkpoint.chat_template()
    if source is None:
        return None
    from .template import ChatTemplate

    return ChatTemplate(source, checkpoint.special())


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    return HubTokenizer(checkpoint) if checkpoint.tokenizer_path() else NoTokenizer()
