"""How a payload is encoded: what functions, arguments, results and exceptions are to those who read them."""

from enum import IntEnum


class Format(IntEnum):
    """An encoding of Python's values."""

    #: pickle of protocol 5 or below, as cloudpickle of a Python writes it: to be read by the same versions of both
    PICKLE = 1
