"""A serializer of a user's, whose bytes nothing else reads, and that reads nothing else."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from scaler import Serializer


class Prefixed(Serializer):
    """cloudpickle behind one byte."""

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """The byte, and a pickle."""
        return b"\x00" + bytes(cloudpickle.dumps(obj))

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """What these bytes were made of; ValueError if they are not ours."""
        if payload[:1] != b"\x00":
            raise ValueError(f"not written by this serializer: {payload[:10]!r}")
        return pickle.loads(payload[1:])
