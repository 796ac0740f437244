"""Another interpreter like this one."""

from __future__ import annotations

import subprocess
import sys


def command(program: str) -> list[str]:
    """What starts an interpreter that runs this program, with the options of this one, and imports what this one can.

    Until it has the paths of this one the program imports nothing but `sys`: it would find what lies in the working
    directory, if only by chance, in the place of the standard library's.
    """
    # Imports pass over entries that are no texts, as over a `pathlib.Path`.
    paths = [entry for entry in sys.path if isinstance(entry, str)]  # type: ignore[redundant-expr]
    # -O, -W, -X, -I and the like, as `multiprocessing` hands them on
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    if "cpu_count" in sys._xoptions:  # it is not one of those
        options += ["-X", f"cpu_count={sys._xoptions['cpu_count']}"]
    return [sys.executable, *options, "-c", f"import sys; sys.path[:] = {paths!r}; {program}"]
