"""Turning functions, arguments, results and errors into bytes and back; the only package that pickles."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.serialize.serializer import Serializer

__all__ = ["Serializer"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from scaler.serialize.serializer import Serializer  # here, as schedulers ask for no more than versions

    return Serializer
