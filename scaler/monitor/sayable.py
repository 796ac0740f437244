"""What a terminal's encoding can't say is written out before it is laid out: `\\xf4` takes more room than `ô`."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

T = TypeVar("T")


def sayable(value: T, encoding: str | None) -> T:
    r"""Texts as they are written in an encoding; all that is in tuples, mappings' values and dataclasses. Pure.

    What has nothing to be written out is given back itself, and all where the encoding is UTF-8 or not known.

    >>> print(sayable("hôst", "ascii"), sayable(("hôst", 5), "latin-1"))
    h\xf4st ('hôst', 5)
    """
    if encoding is None or codecs.lookup(encoding).name == "utf-8":
        return value
    return cast(T, _said(value, encoding))


def _said(value: object, encoding: str) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode(encoding, "backslashreplace").decode(encoding)
    if isinstance(value, tuple):
        said = tuple([_said(each, encoding) for each in value])
        return said if any(a is not b for a, b in zip(said, value, strict=True)) else value
    if isinstance(value, Mapping):
        return {key: _said(each, encoding) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for each in fields(value):
            before = getattr(value, each.name)
            if each.init and (after := _said(before, encoding)) is not before:
                changed[each.name] = after
        return replace(value, **changed) if changed else value
    return value
