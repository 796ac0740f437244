"""What is done when the program ends: clients take leave first, and local clusters end after them.

A client whose cluster has gone before it would try to find it again.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

#: who is called first, and who after that
CLIENTS, CLUSTERS = 0, 1
_functions: dict[int, Callable[[], None]] = {}


def register(who: int, function: Callable[[], None]) -> None:
    """Have this called when the program ends, in the order of `who`, each once. It must not raise."""
    _functions[who] = function


@atexit.register
def _call_all() -> None:
    for who in sorted(_functions):
        _functions[who]()
