"""Large allocations in huge pages, for processes that run user code.

A task that is given 100 MB of bytes copies them into fresh memory. In pages of 4 KiB that takes 100 ms here, most of it
for the kernel to hand them out one by one; in huge ones 45 ms. NumPy asks for them by itself, nothing else does. glibc
asks for all large blocks if it is told so before a program starts (2.35 and newer; others ignore it).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
_TUNABLE = "glibc.malloc.hugetlb"


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variable for a program to be started with; nothing if the user has decided about it.

    >>> environment({})
    {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
    """
    set_already = environ.get(VARIABLE, "")
    if _TUNABLE in set_already or not sys.platform.startswith("linux"):
        return {}
    return {VARIABLE: f"{set_already}:{_TUNABLE}=1".lstrip(":")}


def start_again() -> None:
    """Begin this program anew with the variable set, unless it is; for `main` functions, before anything else."""
    more = environment()
    if more:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **more})
