"""Chat templates, rendered as transformers renders them.

A template comes with a checkpoint, so it is a stranger's program: it runs in jinja2's sandbox, in
which it can change nothing that it is given and reach nothing else.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Mapping, NoReturn, Sequence

from jinja2 import TemplateError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """{% generation %} marks what the model says, for training; it is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, **options: Any) -> str:
    """Without jinja2's escapes for HTML."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _environment() -> ImmutableSandboxedEnvironment:
    extensions: list[type[Extension]] = [_Generation, loopcontrols]
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=extensions
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = _strftime_now
    return made


def _part(part: Any) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and "text" in part:
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ValueError(f"a message has a part of type {kind!r}; the model reads text alone")


def _arguments(call: Any) -> Any:
    """Templates want what a tool was called with as an object; clients send its JSON."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates want it: content that is text, arguments that are objects."""
    made = dict(message)
    content = made.get("content")
    if isinstance(content, (list, tuple)):
        made["content"] = "".join(map(_part, content))
    elif content is not None and not isinstance(content, str):
        kind = type(content).__name__
        raise ValueError(f"a message's content has to be a text or a list of parts, not {kind}")
    if isinstance(made.get("tool_calls"), (list, tuple)):
        made["tool_calls"] = [_arguments(call) for call in made["tool_calls"]]
    return made


class ChatTemplate:
    """special: the tokenizer's special tokens by name, as bos_token."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise ValueError(f"the chat template, line {error.lineno}: {error.message}") from error
        self._special = dict(special)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> str:
        """The prompt at which the model answers. options: what this template knows beside."""
        given = {"add_generation_prompt": True, **self._special, **options}
        try:
            return self._template.render(
                messages=[plain(message) for message in messages], tools=tools, **given
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error
