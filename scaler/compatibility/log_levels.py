"""Levels of the log as the original and `logging` call them."""

from __future__ import annotations

_NUMBERS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
_OTHERS = {"NOTSET": "DEBUG", "WARN": "WARNING", "CRITICAL": "ERROR", "FATAL": "ERROR"}


def level_name(level: str | int) -> str:
    """Our name of a level; what is none is given back as it is.

    >>> level_name("warn"), level_name(20), level_name(0), level_name(50), level_name("loud")
    ('WARNING', 'INFO', 'DEBUG', 'ERROR', 'loud')
    """
    if isinstance(level, int):
        return next((name for name, number in _NUMBERS.items() if number >= level), "ERROR")
    name = level.upper()
    return name if name in _NUMBERS else _OTHERS.get(name, level)
