"""The class users derive from to bring a serialisation of their own."""

from __future__ import annotations

import pickle
from typing import Any

from scaler.serialize import payload


class Serializer:
    """How functions, arguments and results become bytes.

    Override both methods and give the class to `Client(serializer=...)`: the function, each argument and the result
    are then serialised one by one. The class itself travels to the workers by cloudpickle.

    >>> Serializer.deserialize(Serializer.serialize([1, 2]))
    [1, 2]
    """

    @staticmethod
    def serialize(obj: Any) -> bytes:
        """Return `obj` as bytes."""
        return payload.dumps(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        """Return the object that `serialize` made these bytes of."""
        return pickle.loads(payload)
