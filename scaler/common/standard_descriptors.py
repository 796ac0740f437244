"""Descriptors 0, 1 and 2, which a program may have been started without (`program >&-`).

What is opened next is then given their numbers, and what prints or reads would do so there. So they are taken first.
"""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


def occupy() -> None:
    """Have /dev/null hold those that are closed, so that nothing opened from now on is given their numbers.

    For the user's process: its streams stay as they are, and programs that it starts are without them as before.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < len(_NAMES):
        pass
    os.close(descriptor)


def complete() -> None:
    """Be a process that has all three, also as streams and for what it starts. For processes of ours, before others."""
    occupy()
    for number, name in enumerate(_NAMES):
        os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
