"""What several command lines read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def names_of(known: dict[str, Any]) -> Callable[[str], list[str]]:
    """What reads some of these names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}, only {', '.join(known)}")
        return names

    return parse
