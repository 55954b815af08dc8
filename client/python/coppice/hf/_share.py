"""A model's parameters as tensors that the daemon holds: one copy for all processes of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .._coppice import Arena, Connection, TensorInfo, Weights
from .._errors import NotFound
from .._models import open_weights
from ._errors import invalid
from ._shape import DTYPES


def names_of(model: Any) -> dict[Any, list[str]]:
    """Of each parameter: one that is tied has several."""
    names: dict[Any, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return names


def spellings(model: Any, names: list[str]) -> Iterator[str]:
    """As checkpoints may have them: with the base model's prefix, or without."""
    prefix = f"{model.base_model_prefix}."
    for name in names:
        yield name
        yield name.removeprefix(prefix) if name.startswith(prefix) else prefix + name


def find(model: Any, weights: Weights, names: list[str]) -> TensorInfo:
    for name in spellings(model, names):
        try:
            return weights.tensor(weights.find(name))
        except NotFound as error:
            failure = error
    raise NotFound(
        failure.errno, f"the weights have no tensor {names[0]}: they hold matrices and vectors"
    )


def check_like(name: str, parameter: Any, info: TensorInfo) -> None:
    """Raises Invalid."""
    if tuple(parameter.shape) != info.shape:
        raise invalid(f"{name} is {list(parameter.shape)}, the weights have {list(info.shape)}")
    if DTYPES.get(parameter.dtype) != info.dtype:
        raise invalid(
            f"{name} is of {parameter.dtype}, the weights have {info.dtype}: make the model so"
        )


def check_buffers(model: Any) -> None:
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise invalid(
                f"{name} is on meta, and no weight: parameters alone may be there, not buffers"
            )


def view_of(arena: Arena, info: TensorInfo) -> Any:
    view = torch.from_dlpack(arena.tensor(info.shape, info.dtype, offset=info.offset))
    return torch.nn.Parameter(view, requires_grad=False)


def check_devices(model: Any, names: dict[Any, list[str]], views: dict[Any, Any]) -> None:
    """Of buffers too: they may be all that a model has in memory."""
    [device] = {view.device for view in views.values()}
    there = {names[parameter][0]: parameter for parameter in views if not parameter.is_meta}
    for name, tensor in [*there.items(), *model.named_buffers()]:
        if tensor.device != device:
            raise invalid(
                f"{name} is on {tensor.device}, the daemon's weights on {device}: move it there"
            )


def folder_of(model: Any) -> Path:
    """Where from_pretrained has read it."""
    name = getattr(model.config, "_name_or_path", "")
    folder = Path(name)
    if not name or not folder.is_dir():
        raise invalid(
            f"the model was read from no folder (_name_or_path of its config is {name!r}): give "
            "share_weights its weights, coppice.open_weights(connection, folder)"
        )
    return folder


def share_weights(model: Any, weights: Weights | None = None) -> None:
    """Makes a model's parameters those that the daemon holds, and lets go of its own.

        coppice.hf.share_weights(model)
        coppice.hf.share_weights(model, coppice.open_weights(connection, folder))

    Without weights they are those of the folder that from_pretrained read, by a connection that is
    made for it: to COPPICE_SOCKET, as coppice.connect does.

    Blocks until they are there. The model is from then on that of the files, without gradients; its
    parameters may be on meta before. They stay beyond weights and connection. On a CPU what is
    written to them is this process's own; on a GPU it is what all processes of the user read, who
    so can mislead himself, and nobody else; and there they end with the daemon. Raises NotFound and
    Invalid, of the first parameter that the weights do not have so, or buffer that is elsewhere;
    then nothing has changed. Attach and capture after it.
    """
    if weights is not None:
        share(model, weights)
        return
    folder = folder_of(model)
    with Connection() as connection, open_weights(connection, folder) as opened:
        share(model, opened)


def share(model: Any, weights: Weights) -> None:
    weights.wait()
    check_buffers(model)
    names = names_of(model)
    infos = {parameter: find(model, weights, names[parameter]) for parameter in names}
    for parameter, info in infos.items():
        check_like(names[parameter][0], parameter, info)
    arena = weights.map()
    views = {parameter: view_of(arena, info) for parameter, info in infos.items()}
    check_devices(model, names, views)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            setattr(module, name, views[parameter])
