"""What the extension says of itself at run time is what its stubs say."""

from __future__ import annotations

import __future__
import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHECKPOINT

import coppice
from coppice import _coppice, aio

FOLDER = Path(_coppice.__file__).parent
STUBS = [ast.parse((FOLDER / name).read_text()) for name in ("_coppice.pyi", "_records.pyi")]
CLASSES = {
    item.name: item
    for stub in STUBS
    for item in stub.body
    if isinstance(item, ast.ClassDef) and hasattr(_coppice, item.name)
}
RECORDS = {name: kind for name, kind in CLASSES.items() if "structseq" in ast.dump(kind)}


def functions_of(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for item in body:
        if isinstance(item, ast.FunctionDef):
            yield item


DECLARED = {function.name: function for function in functions_of(STUBS[0].body)} | {
    f"{name}.{function.name}": function
    for name, kind in CLASSES.items()
    for function in functions_of(kind.body)
}


def found(name: str) -> Any:
    """A function of the extension, or what a class of its has; of __new__ the class."""
    thing: Any = _coppice
    for part in name.removesuffix(".__new__").split("."):
        thing = getattr(thing, part)
    return thing


def parameters(function: Any) -> list[tuple[str, Any, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def declared(function: ast.FunctionDef) -> list[tuple[str, Any, object]]:
    """As Python itself reads it, with the name of what it is called on."""
    space: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    decorators, function.decorator_list = function.decorator_list, []
    code = compile(ast.Module([function], []), "stubs", "exec", flags, dont_inherit=True)
    function.decorator_list = decorators
    exec(code, space)
    return parameters(space[function.name])


@pytest.mark.parametrize("name", DECLARED)
def test_docstrings_and_signatures_are_those_of_the_stubs(name: str) -> None:
    function, thing = DECLARED[name], found(name)
    doc = ast.get_docstring(function)
    if not name.endswith(("__new__", "__len__")):  # these are Python's own words
        assert doc and inspect.getdoc(thing) == doc
    if not callable(thing):
        return
    wanted, got = declared(function), parameters(thing)
    if name.endswith("__new__"):
        wanted = wanted[1:]
    elif "." in name:
        assert got[0] == ("self", inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.empty)
        wanted, got = wanted[1:], got[1:]
    assert got == wanted


@pytest.mark.parametrize("name", CLASSES)
def test_docstrings_of_classes_are_those_of_the_stubs(name: str) -> None:
    assert inspect.getdoc(getattr(_coppice, name)) == ast.get_docstring(CLASSES[name])
    assert inspect.getdoc(_coppice) == ast.get_docstring(STUBS[0])


def is_new(name: str, base: type) -> bool:
    return name not in dir(base) and not name.startswith("_")


def is_ours(name: str, thing: object) -> bool:
    return inspect.isfunction(thing) and not name.startswith("_")


def members(kind: type) -> Iterator[Any]:
    base = next(b for b in kind.__mro__ if b.__module__ in ("builtins", "typing"))
    yield from (getattr(kind, name) for name in vars(kind) if is_new(name, base))


def test_all_that_is_public_has_a_docstring_and_a_signature() -> None:
    public = [getattr(coppice, name) for name in coppice.__all__]
    public += [thing for name, thing in vars(aio).items() if is_ours(name, thing)]
    kinds = [thing for thing in public if isinstance(thing, type)]
    ours = [kind for kind in kinds if hasattr(_coppice, kind.__name__)]
    public += [member for kind in ours for member in members(kind)]
    assert len(public) > 200
    for thing in public:
        assert thing.__doc__, thing
        if callable(thing) and not (isinstance(thing, type) and issubclass(thing, OSError)):
            inspect.signature(thing)


def test_all_that_the_extension_has_is_in_the_stubs() -> None:
    for name in vars(_coppice):
        assert name in CLASSES or name in DECLARED or name.startswith("__"), name
    for name in CLASSES:
        for member in vars(getattr(_coppice, name)):
            assert member.startswith(("_", "n_")) or f"{name}.{member}" in DECLARED, member


def test_what_is_made_by_others_is_made_by_nobody_else() -> None:
    made = {name.split(".")[0] for name in DECLARED if name.endswith("__new__")}
    assert made == {"Connection", "Part", "Capture"}
    for name in CLASSES.keys() - RECORDS.keys() - made:
        with pytest.raises(TypeError, match="cannot create"):
            getattr(_coppice, name)()


def test_what_goes_by_place_alone(lane: coppice.Lane, model: coppice.Model) -> None:
    connection = lane.connection
    weights = coppice.open_weights(connection, CHECKPOINT)
    tensor = connection.arena(4096).tensor(4)
    things = (connection, lane, lane.open(model, [1]), weights, tensor)
    by_class = {type(thing).__name__: thing for thing in things}
    n = 0
    for name, function in DECLARED.items():
        given = {arg.arg: 1 for arg in function.args.posonlyargs if arg.arg != "self"}
        thing = by_class.get(name.split(".")[0])
        if given and thing is not None:
            with pytest.raises(TypeError):
                getattr(thing, name.split(".")[1])(**given)
            n += 1
    assert n >= 12


# ---- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
def test_fields_of_records_are_those_of_the_stubs(name: str) -> None:
    """Their names and types, in their order."""
    fields = list(functions_of(RECORDS[name].body))
    kind = getattr(_coppice, name)
    assert kind.__match_args__ == tuple(field.name for field in fields)
    assert kind.n_fields == kind.n_sequence_fields == len(fields) and kind.n_unnamed_fields == 0
    items = [ast.unparse(field.returns) for field in fields if field.returns is not None]
    assert f"tuple[{', '.join(items)}]" in map(ast.unparse, RECORDS[name].bases)


KINDS = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "Dtype": str,
    "tuple[int, ...]": tuple,
    "tuple[float, ...]": tuple,
    "Tensor | None": coppice.Tensor,
}


def test_values_of_records_are_of_their_types(lane: coppice.Lane, model: coppice.Model) -> None:
    weights = coppice.open_weights(lane.connection, CHECKPOINT)
    records: list[Any] = [weights.wait(), weights.tensor(0), lane.connection.stats()]
    seq = lane.open(model, b"In the", salt=950)
    decode = seq.decode(b"In the", logits=True, hidden=True)
    records += [seq.match, seq.state(), *decode.wait(), lane.poll(decode.ticket)]
    assert {type(record).__name__ for record in records} == set(RECORDS)
    for record in records:
        for field in functions_of(RECORDS[type(record).__name__].body):
            assert field.returns is not None
            wanted = KINDS[ast.unparse(field.returns)]
            assert type(getattr(record, field.name)) is wanted, (record, field.name)
