"""Functions that are made as text, where one for each class saves loops over its fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def compiled(signature: str, lines: Sequence[str], known: dict[str, Any], place: str) -> Callable[..., Any]:
    """The function of this signature and body; `known`: what names in it are; `place`: what tracebacks show.

    >>> compiled("double(x)", ["return two * x"], {"two": 2}, "<an example>")(21)
    42
    """
    source = f"def {signature}:\n " + "\n ".join(lines)
    # not the text itself: Python forgets by that that Ctrl-C is why it ends
    exec(compile(source, place, "exec"), known)
    made: Callable[..., Any] = known[signature.partition("(")[0]]
    return made
