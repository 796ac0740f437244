"""Variables that count only if a program is started with them, for processes that run user code, and their parents.

Large allocations in huge pages. A task that is given 100 MB of bytes copies them into fresh memory. In pages of 4 KiB
that takes 100 ms here, most of it for the kernel to hand them out one by one; in huge ones 45 ms. NumPy asks for them
by itself, nothing else does. glibc asks for all large blocks if it is told so before a program starts (2.35 and newer;
others ignore it).

One seed for `hash()`. Python hashes strings and bytes with a seed that each program draws for itself. Tasks that deal
out words by `hash(word) % n` would do so differently on each host: each word's share would be in several places.
Workers are forked, and have the seed of their agent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_MALLOC = "GLIBC_TUNABLES"
_TUNABLE = "glibc.malloc.hugetlb"
_HASH = "PYTHONHASHSEED"
#: the number that distributed gives its workers; written as no user does, so that it is known to be ours
_SEED = "0006640"


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for a program to be started with: those about which the user has decided nothing.

    >>> environment({"PYTHONHASHSEED": "random"})
    {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
    """
    more = {}
    set_already = environ.get(_MALLOC, "")
    if _TUNABLE not in set_already and sys.platform.startswith("linux"):
        more[_MALLOC] = f"{set_already}:{_TUNABLE}=1".lstrip(":")
    if not environ.get(_HASH):
        more[_HASH] = _SEED
    return more


def for_tasks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what tasks see of an agent's environment: programs that they start draw their seeds as ever.

    >>> for_tasks({"PYTHONHASHSEED": "1"}), for_tasks(environment({"GLIBC_TUNABLES": ""}))
    ({'PYTHONHASHSEED': '1'}, {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'})
    """
    return {name: value for name, value in environ.items() if (name, value) != (_HASH, _SEED)}


def hashes_as_elsewhere(environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether this process was started with the seed that the user's agents have."""
    return bool(environ.get(_HASH))


def start_again() -> None:
    """Begin this program anew with the variables, unless it has them; for `main` functions, before anything else."""
    more = environment()
    if more:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **more})
