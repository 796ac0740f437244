"""Turning functions, arguments, results and errors into bytes and back; the only package that pickles."""

from __future__ import annotations

from scaler.common.later_names import imported

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.serialize.serializer import Serializer

__all__ = ["Serializer"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return imported("scaler.serialize.serializer", name)  # here, as schedulers ask for no more than versions
