"""Texts that are none: JSON can tell half of a pair of surrogates, which UTF-8 cannot."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, Mapping

from .._coppice import extremes
from ..generation.tokenizer import lone_surrogate
from .errors import ApiError

# What a body has wherever a lone surrogate may be in it: an escape, UTF-8 of one, or UTF-16.
_MAY_HAVE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\0")


def _inside(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value is made of, and where that is."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"a name in {where or 'the body'}", key
            yield (f"{where}.{key}" if where else key), one
    elif isinstance(value, list) and extremes(value) is None:
        for index, one in enumerate(value):
            yield f"{where}[{index}]", one


def check(where: str, value: Any, param: str | None = None) -> None:
    """Raises where a text in value has a lone surrogate. It may be nested as deep as it likes."""
    left = [iter([(where, value)])]
    while left:
        for where, value in left[-1]:
            if isinstance(value, str):
                _check_text(where, value, param)
            elif isinstance(value, (dict, list)):
                left.append(_inside(where, value))
                break
        else:
            left.pop()


def _check_text(where: str, text: str, param: str | None) -> None:
    found = lone_surrogate(text)
    if found is None:
        return
    told = f"a lone surrogate, \\u{ord(found[0]):04x}, at character {found.start()}"
    raise ApiError(400, f"{where} is no Unicode text: it has {told}", param=param)


def check_body(body: bytes, fields: Mapping[str, Any]) -> None:
    """fields: what the body says."""
    if _MAY_HAVE.search(body) is None:
        return
    for name in fields:
        check("the name of a field", name)
    for name, value in fields.items():
        check(name, value, name)


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def check_arguments(index: int, message: Mapping[str, Any]) -> None:
    """Of tool calls: JSON within the JSON, which the chat template reads."""
    for number, call in enumerate(_calls(message)):
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if not isinstance(arguments, str):
            continue
        where = f"messages[{index}].tool_calls[{number}].function.arguments"
        try:
            found = json.loads(arguments)
        except ValueError:
            continue  # the template has it as a text
        except RecursionError as error:
            raise too_deep(where) from error
        check(where, found, "messages")


def too_deep(where: str) -> ApiError:
    message = f"{where}: lists and objects are nested too deep: nest them less"
    return ApiError(400, message, param="messages")
