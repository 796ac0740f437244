"""Numbers of bytes and of seconds as people write them: with a unit."""

from __future__ import annotations

import re

_AMOUNT = r"\s*([+-]?[0-9._]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*"

_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _SIZES |= dict.fromkeys((_letter, f"{_letter}b"), 1000**_power)
    _SIZES |= dict.fromkeys((f"{_letter}i", f"{_letter}ib"), 1024**_power)

_SECONDS: dict[str, float] = {"": 1}
for _seconds, _short, _name in (
    (1e-9, "ns", "nanosecond"), (1e-6, "us", "microsecond"), (1e-3, "ms", "millisecond"), (1, "s", "second"),
    (60, "m", "minute"), (3600, "h", "hour"), (86_400, "d", "day"), (604_800, "w", "week"),
):  # fmt: skip
    _SECONDS |= dict.fromkeys((_short, _name, f"{_name}s"), _seconds)
_SECONDS |= {"min": 60, "mins": 60, "sec": 1, "secs": 1, "hr": 3600, "hrs": 3600}


def bytes_of(text: str) -> int:
    """A number of bytes; without a unit it is one of bytes. Raises ValueError, for what is less than a byte as well.

    >>> [bytes_of(text) for text in ("2GB", "512 MiB", "1.5k", "4e9", "0", "10_000b")]
    [2000000000, 536870912, 1500, 4000000000, 0, 10000]
    """
    number, factor = _read(text, _SIZES)
    size = number * int(factor) if isinstance(number, int) else round(number * factor)
    if number and not size:
        raise ValueError(text)
    return size


def seconds_of(text: str) -> float:
    """A number of seconds; without a unit it is one of seconds. Raises ValueError.

    >>> [seconds_of(text) for text in ("30s", "5 min", "1.5h", "250ms", "7")]
    [30.0, 300.0, 5400.0, 0.25, 7.0]
    """
    number, factor = _read(text, _SECONDS)
    return float(number) * factor


def _read(text: str, units: dict[str, float] | dict[str, int]) -> tuple[float, float]:
    found = re.fullmatch(_AMOUNT, text)
    factor = units.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError(text)
    number = found[1]
    return int(number) if number.lstrip("+-").replace("_", "").isdigit() else float(number), factor
