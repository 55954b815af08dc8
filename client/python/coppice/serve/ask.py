"""What a request's body asks for, checked field by field."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping

from .._coppice import extremes
from ..generation.request import sampling_of
from ..generation.sampling import Sampling
from . import unicode
from .errors import ApiError

# What would change the result and is not computed, and what it may be given as all the same.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "functions": ([],),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text",
          list: "a list", dict: "an object"}


def _bad(param: str, message: str) -> ApiError:
    return ApiError(400, f"{param} {message}", param=param)


def _float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise _bad(name, "is too large a number") from error


def parse(body: bytes) -> Fields:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError(400, "the body has to be a JSON object")
    unicode.check_body(body, found)
    return Fields(found)


class Fields:
    """Of a body. null stands for a field that is not given."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        value = self._body.get(name)
        if value is None:
            return default
        if kind is float and type(value) is int:
            return _float(name, value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise _bad(name, f"has to be {_KINDS[kind]}")
        return value

    def raw(self, name: str) -> Any:
        value = self._body.get(name)
        if value is None:
            raise _bad(name, "is missing")
        return value

    def refuse(self) -> None:
        """Fields that would be passed over in silence else."""
        for name, harmless in _REFUSED.items():
            value = self._body.get(name)
            if value is not None and value not in harmless:
                raise _bad(name, "is not supported here: leave it out")


@dataclass
class Ask:
    """prompts: texts or lists of tokens; messages: of a chat, in place of them."""

    sampling: Sampling
    stream: bool
    include_usage: bool
    token_ids: bool  # are wanted beside the text
    prompts: list[str | list[int]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None


def _stops(fields: Fields) -> tuple[str, ...]:
    given = fields._body.get("stop")
    stops = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise _bad("stop", "has to be a text or a list of texts, none of them empty")
    if len(stops) > 16:
        raise _bad("stop", "has more than 16 texts")
    return tuple(stops)


def _stop_ids(fields: Fields) -> tuple[int, ...]:
    given = fields.get("stop_token_ids", list, [])
    if not all(type(i) is int for i in given):
        raise _bad("stop_token_ids", "has to be a list of tokens")
    if min(given, default=0) < 0:
        raise _bad("stop_token_ids", f"has {min(given)}, which is no token: they are 0 or more")
    return tuple(given)


def check_stop_ids(sampling: Sampling, n_vocab: int) -> None:
    """Once the model is known."""
    most = max(sampling.stop_ids, default=0)
    if most >= n_vocab:
        raise _bad("stop_token_ids", f"has {most}, which is not of the model's {n_vocab} tokens")


def _top_k(fields: Fields) -> int | None:
    """0 and -1: no limit, whatever the model's own is. None: not given."""
    top_k: int | None = fields.get("top_k", int)
    return 0 if top_k == -1 else top_k


def _sampling(
    fields: Fields, defaults: Mapping[str, Any], own: Mapping[str, Any], names: Mapping[str, str]
) -> Sampling:
    """names: of fields that Sampling calls otherwise."""
    options = {
        "temperature": fields.get("temperature", float),
        "top_p": fields.get("top_p", float),
        "top_k": _top_k(fields),
        "n": fields.get("n", int),
        "seed": fields.get("seed", int),
        "stop": _stops(fields),
        "stop_ids": _stop_ids(fields),
        "ignore_eos": fields.get("ignore_eos", bool),
        "skip_special_tokens": fields.get("skip_special_tokens", bool),
        **own,
    }
    try:
        return sampling_of(defaults, options)
    except ValueError as error:
        name, _, rule = str(error).partition(" ")
        raise _bad(names.get(name, name), rule) from error


def _ask(fields: Fields, sampling: Sampling) -> Ask:
    fields.refuse()
    usage = fields.get("stream_options", dict, {}).get("include_usage", False)
    return Ask(
        sampling,
        stream=fields.get("stream", bool, False),
        include_usage=bool(usage),
        token_ids=fields.get("return_token_ids", bool, False),
    )


def _is_tokens(value: Any) -> bool:
    return extremes(value) is not None


def _prompts(given: Any) -> list[str | list[int]]:
    if isinstance(given, str) or _is_tokens(given):
        return [given]
    if isinstance(given, list) and given:
        if all(isinstance(one, str) or _is_tokens(one) for one in given):
            return given
    raise _bad("prompt", "has to be a text, a list of tokens, or a list of one or the other")


def completion(fields: Fields, defaults: Mapping[str, Any]) -> Ask:
    own = {"max_tokens": fields.get("max_tokens", int, 16), "logprobs": fields.get("logprobs", int)}
    ask = _ask(fields, _sampling(fields, defaults, own, {}))
    ask.prompts = _prompts(fields.raw("prompt"))
    return ask


def _messages(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given:
        raise _bad("messages", "has to be a list of at least one message")
    for index, message in enumerate(given):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _bad("messages", "has to hold objects, each with a role")
        unicode.check_arguments(index, message)
    return given


def _chat_logprobs(fields: Fields) -> int | None:
    top: int = fields.get("top_logprobs", int, 0)
    if fields.get("logprobs", bool, False):
        return top
    if top:
        raise _bad("top_logprobs", "is for answers with logprobs: give logprobs as true, too")
    return None


def chat(fields: Fields, defaults: Mapping[str, Any]) -> Ask:
    names = {"logprobs": "top_logprobs"}
    max_tokens = fields.get("max_tokens", int)
    if (newer := fields.get("max_completion_tokens", int)) is not None:
        max_tokens, names["max_tokens"] = newer, "max_completion_tokens"
    own = {"max_tokens": max_tokens, "logprobs": _chat_logprobs(fields)}
    ask = _ask(fields, _sampling(fields, defaults, own, names))
    ask.messages = _messages(fields.raw("messages"))
    ask.tools = fields.get("tools", list)
    if ask.tools and fields.get("tool_choice", str) != "none":
        ask.sampling = ask.sampling.with_tools()
    return ask
