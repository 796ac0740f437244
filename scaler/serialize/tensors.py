"""Memory of PyTorch's tensors, which their pickle would have as the bytes of a file that `torch.save` writes.

To write and read that takes ten times as long as to copy the memory, and what is written anew can't be recognised. So
storages give their memory as buffers. Tensors that are views of one storage stay so.
"""

from __future__ import annotations

import importlib
import sys
from pickle import PickleBuffer
from typing import Any

#: the module of the classes of storages
MODULE = "torch.storage"
#: storages of fewer bytes are copied: one that has lent its memory can't grow any more
_LENT_FROM = 8_192


def reduced(storage: Any) -> Any:
    """How a storage is pickled, as `Pickler.reducer_override` returns it; NotImplemented if it has no memory here."""
    torch: Any = sys.modules["torch"]
    kind = type(storage)
    if kind is torch.storage.TypedStorage:
        untyped = storage._untyped_storage
        return NotImplemented if _memory_of(untyped, torch) is None else (_typed, (untyped, storage.dtype))
    if kind is torch.storage.UntypedStorage and (memory := _memory_of(storage, torch)) is not None:
        return _bytes, (PickleBuffer(memory),)
    return NotImplemented


def _memory_of(untyped: Any, torch: Any) -> Any:
    """A storage's memory as an array, or a copy; None if it is on a device, or PyTorch has no NumPy."""
    if untyped.device.type != "cpu":
        return None
    tensor = torch.empty(0, dtype=torch.uint8, device="cpu").set_(untyped)
    try:
        return (tensor.clone() if untyped.nbytes() < _LENT_FROM else tensor).numpy()
    except RuntimeError:
        return None


def _bytes(buffer: Any) -> Any:
    """A storage of bytes over this memory; over a copy if it can't be written to, or is small and might be resized.

    It is typed: `torch.load` gives those for untyped ones, and tensors of types that have no storages rely on that.
    """
    torch: Any = importlib.import_module("torch")
    memory = memoryview(buffer)
    if memory.readonly:
        memory = memoryview(bytearray(memory))
    empty = not memory.nbytes  # which PyTorch makes nothing of
    tensor = torch.empty(0, dtype=torch.uint8, device="cpu") if empty else torch.frombuffer(memory, dtype=torch.uint8)
    if type(buffer) is bytearray:
        tensor = tensor.clone()
    return _storage(torch, tensor.untyped_storage(), torch.uint8)


def _typed(memory: Any, dtype: Any) -> Any:
    return _storage(importlib.import_module("torch"), memory._untyped_storage, dtype)


def _storage(torch: Any, untyped: Any, dtype: Any) -> Any:
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
