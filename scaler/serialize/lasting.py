"""What of a pickle is the same in each run of a program that pickles the same.

Classes that travel by value, and what else is to be one and the same wherever it arrives, have a number by chance in
their pickles, by which `cloudpickle` knows them again. Versions of classes are made of such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cloudpickle import cloudpickle

from scaler.serialize.class_versions import is_version

#: a text of 32 characters as a pickle has it
_NUMBER = re.compile(rb"\x8c\x20([0-9a-f]{32})")


def lasting_parts(pickled: bytes | memoryview, found: dict[bytes, int]) -> Iterator[bytes | memoryview]:
    """The parts of a pickle, with others in the place of such numbers: `found` has them, in the order of their coming.

    >>> b"".join(lasting_parts(b"of ints", {}))
    b'of ints'
    """
    view, start = memoryview(pickled), 0
    for match in _NUMBER.finditer(view):
        number = bytes(match[1])
        text = number.decode()
        if text in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID or is_version(text):
            yield view[start : match.start()]
            yield found.setdefault(number, len(found)).to_bytes(34, "little")
            start = match.end()
    yield view[start:]
