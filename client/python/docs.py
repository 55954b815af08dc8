#!/usr/bin/env python3
"""Docstrings of the extension, of its stubs: a C table of names and texts, which src/docs.c reads.

usage: docs.py HEADER STUBS...

A function's text begins with its signature, in the form that Python's inspect knows; a class's with
that of its __new__. What may not be made has none, and struct sequences have what all of them have.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

OF_RECORDS = "(sequence, dict={})"
HEAD = "/* {}: made by docs.py. */\n"


def word(arg: ast.arg, default: ast.expr | None) -> str:
    return arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}"


def signature(function: ast.FunctionDef, in_class: bool) -> str:
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
    words, n_only = list(map(word, positional, defaults)), len(args.posonlyargs)
    if function.name == "__new__":
        words, n_only = words[1:], max(n_only - 1, 0)
    elif in_class:
        words, n_only = ["$self", *words[1:]], max(n_only, 1)
    else:
        words, n_only = ["$module", *words], n_only + 1
    if n_only:
        words.insert(n_only, "/")
    if args.kwonlyargs:
        words.append("*")
    words += map(word, args.kwonlyargs, args.kw_defaults)
    return f"({', '.join(words)})"


def is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in function.decorator_list)


def text(function: ast.FunctionDef, in_class: bool = False) -> str:
    doc = ast.get_docstring(function) or ""
    if is_property(function):
        return doc
    return f"{function.name}{signature(function, in_class)}\n--\n\n{doc}"


def of_class(kind: ast.ClassDef) -> Iterator[tuple[str, str]]:
    doc = ast.get_docstring(kind) or ""
    functions = [item for item in kind.body if isinstance(item, ast.FunctionDef)]
    made = [signature(function, True) for function in functions if function.name == "__new__"]
    made += [OF_RECORDS for base in kind.bases if ast.unparse(base).startswith("structseq")]
    yield kind.name, f"{kind.name}{made[0]}\n--\n\n{doc}" if made else doc
    for function in functions:
        if function.name != "__new__":
            yield f"{kind.name}.{function.name}", text(function, in_class=True)


def of_module(module: ast.Module) -> Iterator[tuple[str, str]]:
    for item in module.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name, text(item)
        elif isinstance(item, ast.ClassDef):
            yield from of_class(item)


def main(header: Path, stubs: list[Path]) -> None:
    """The first of the stubs is the extension's own."""
    modules = [ast.parse(stub.read_text()) for stub in stubs]
    docs = [("", ast.get_docstring(modules[0]) or "")]
    docs += [doc for module in modules for doc in of_module(module)]
    rows = [f"{{{json.dumps(name)}, {json.dumps(doc)}}},\n" for name, doc in docs]
    header.write_text(HEAD.format(header.name) + "".join(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(stub) for stub in sys.argv[2:]])
