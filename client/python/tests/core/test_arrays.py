"""Arenas as other packages' arrays: the same memory, for as long as one of them has it."""

from __future__ import annotations

import gc

import pytest
from harness import n_arena_maps

import coppice


def test_numpy_has_the_same_memory(connection: coppice.Connection) -> None:
    numpy = pytest.importorskip("numpy")
    tensor = connection.arena(4096).tensor((4, 8))
    array = numpy.asarray(tensor)
    assert array.shape == (4, 8) and array.ctypes.data == tensor.address
    array[1, 2] = 5
    assert tensor.tolist()[10] == 5
    assert numpy.from_dlpack(tensor)[1, 2] == 5


@pytest.mark.parametrize("by", ["asarray", "from_dlpack"])
def test_an_array_outlives_all_else(connection: coppice.Connection, by: str) -> None:
    numpy = pytest.importorskip("numpy")
    before = n_arena_maps()
    arena = connection.arena(1 << 21)
    array = getattr(numpy, by)(arena.tensor(1024))
    arena.close()
    del arena
    connection.close()
    gc.collect()
    array[:] = 3
    assert array.sum() == 3 * 1024
    del array
    gc.collect()
    assert n_arena_maps() <= before


def test_torch_has_the_same_memory(connection: coppice.Connection) -> None:
    torch = pytest.importorskip("torch")
    tensor = connection.arena(4096).tensor((2, 3), "bfloat16")
    array = torch.from_dlpack(tensor)
    array[1, 1] = 2.5
    assert array.dtype == torch.bfloat16 and tensor.tolist() == [0, 0, 0, 0, 2.5, 0]


def test_tensors_are_read_and_written_without_either(connection: coppice.Connection) -> None:
    arena = connection.arena(4096)
    half = arena.tensor(2, "float16")
    half.write(b"\x00\x3c\x00\xc0")
    assert half.tolist() == [1.0, -2.0] and half.tobytes() == b"\x00\x3c\x00\xc0"
    octets = arena.tensor((1, 3), "uint8", offset=2048)
    octets.write(b"\x01\x02\x03")
    assert octets.tolist() == [1, 2, 3] and octets.address == arena.address + 2048
    assert octets.nbytes == 3 and octets.__dlpack_device__() == (1, 0)


def test_pieces_are_apart_until_the_arena_is_reset(connection: coppice.Connection) -> None:
    arena = connection.arena(1 << 20)
    a, b = arena.tensor(100), arena.tensor(100)
    assert b.address >= a.address + a.nbytes
    with pytest.raises(coppice.NoRoom, match="reset"):
        arena.tensor(1 << 20)
    arena.reset()
    assert arena.tensor(100).address == a.address


def test_what_numpy_does_not_know_is_said(connection: coppice.Connection) -> None:
    tensor = connection.arena(4096).tensor(2, "bfloat16")
    with pytest.raises(AttributeError, match="bfloat16"):
        tensor.__array_interface__
    with pytest.raises(AttributeError, match="host memory"):
        tensor.__cuda_array_interface__
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)


def test_a_capsule_that_nobody_takes_keeps_nothing(connection: coppice.Connection) -> None:
    before = n_arena_maps()
    arena = connection.arena(1 << 21)
    capsule = arena.tensor(4).__dlpack__()
    del arena
    gc.collect()
    assert n_arena_maps() > before
    del capsule
    gc.collect()
    assert n_arena_maps() == before
