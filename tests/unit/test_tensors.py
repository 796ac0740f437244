"""Memory of PyTorch's tensors is pickled as buffers. Without PyTorch, with as much of it as the picklers use."""

import sys
from types import ModuleType, SimpleNamespace

import numpy
import pytest

from scaler.serialize import outofband, payload, tensors

LARGE = 100_000


class UntypedStorage:
    __module__ = tensors.MODULE

    def __init__(self, memory, device="cpu"):
        self.memory = numpy.frombuffer(memory, numpy.uint8)
        self.device = SimpleNamespace(type=device)

    def nbytes(self):
        return self.memory.nbytes

    def __reduce__(self):
        return _of_its_own, (self.device.type,)


class TypedStorage:
    __module__ = tensors.MODULE

    def __init__(self, *, wrap_storage, dtype, _internal):
        self._untyped_storage, self.dtype = wrap_storage, dtype

    def __reduce__(self):
        return _of_its_own, (self.dtype,)


class Tensor:
    """Of bytes."""

    def __init__(self, memory=b""):
        self.memory = memory

    def set_(self, storage):
        return Tensor(storage.memory)

    def numpy(self):
        return numpy.frombuffer(self.memory, numpy.uint8)

    def clone(self):
        return Tensor(bytearray(self.memory))

    def untyped_storage(self):
        return UntypedStorage(self.memory)


def _of_its_own(what):
    return f"the library's own pickle of {what}"


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    torch = ModuleType("torch")
    torch.storage = SimpleNamespace(TypedStorage=TypedStorage, UntypedStorage=UntypedStorage)
    torch.uint8 = "uint8"
    torch.empty = lambda size, dtype, device: Tensor()
    torch.frombuffer = lambda memory, dtype: Tensor(memory)
    monkeypatch.setitem(sys.modules, "torch", torch)


def typed(memory, dtype="float32", device="cpu"):
    return TypedStorage(wrap_storage=UntypedStorage(memory, device), dtype=dtype, _internal=True)


def by_dumps(value):
    return payload.loads(payload.dumps(value))


def by_value(value):
    return payload.loads(payload.dumps_by_value(value))


def by_parts(value):
    return outofband.unpack(*outofband.pack(value))


@pytest.mark.parametrize("size", [0, 10, LARGE])
@pytest.mark.parametrize("sent", [by_dumps, by_value, by_parts])
def test_a_storage_arrives(sent, size):
    arrived = sent(typed(bytearray(range(10)) * (size // 10)))
    assert arrived.dtype == "float32"
    assert bytes(arrived._untyped_storage.memory) == bytes(range(10)) * (size // 10)
    assert arrived._untyped_storage.memory.flags.writeable or not size


def test_large_memory_stays_where_it_is():
    memory = bytearray(LARGE)
    packed = outofband.pack(typed(memory))
    assert len(packed.inband) < 1_000
    memory[5] = 7
    assert outofband.unpack(*packed)._untyped_storage.memory[5] == 7


def test_views_of_one_storage_stay_so():
    first = typed(bytearray(LARGE))
    packed = outofband.pack([first, TypedStorage(wrap_storage=first._untyped_storage, dtype="uint8", _internal=True)])
    assert len(packed.buffers) == 1
    one, other = outofband.unpack(*packed)
    assert one._untyped_storage is other._untyped_storage


def test_memory_that_can_not_be_written_to_is_copied():
    inband, buffers = outofband.pack(typed(bytearray(LARGE)))
    arrived = outofband.unpack(inband, [bytes(buffer) for buffer in buffers])
    assert arrived._untyped_storage.memory.flags.writeable


@pytest.mark.parametrize("made", [lambda: typed(b"1", "elsewhere", "cuda"), lambda: UntypedStorage(b"1", "meta")])
def test_what_has_no_memory_here_is_left_to_the_library(made):
    assert str(by_dumps(made())).startswith("the library's own pickle of ")


def test_without_numpy_it_is_left_to_the_library(monkeypatch):
    def refuse(tensor):
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(Tensor, "numpy", refuse)
    assert by_dumps(typed(b"1", "float32")) == "the library's own pickle of float32"
    assert by_dumps(UntypedStorage(b"1")) == "the library's own pickle of cpu"
