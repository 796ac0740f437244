"""What several command lines read, and how they end."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn


def names_of(known: dict[str, Any]) -> Callable[[str], list[str]]:
    """What reads some of these names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}, only {', '.join(known)}")
        return names

    return parse


def end_in_order(_number: int, _frame: object) -> NoReturn:
    """The handler of SIGTERM: by way of the blocks that end what we have started."""
    raise SystemExit(143)
