"""The source lines that a worker's traceback lacks and that are known here: of a notebook's cells, or of a script that
is on the client's machine alone.
"""

from __future__ import annotations

import linecache
import re

#: a frame whose line of source does not follow, which would stand deeper
_BARE = re.compile(r'^([ |]*)File "([^"\n]+)", line (\d+), in [^\n]*\n(?!\1 )', re.MULTILINE)


def with_source_lines(text: str) -> str:
    """A traceback with the lines of source that Python would show here. Reads files if there are such; never raises.

    >>> linecache.cache["<cell 3>"] = 9, None, ["def half(n):\\n", "    return n / 0\\n"], "<cell 3>"
    >>> print(with_source_lines('  File "<cell 3>", line 2, in half\\nZeroDivisionError: division by zero'))
      File "<cell 3>", line 2, in half
        return n / 0
    ZeroDivisionError: division by zero
    """
    return _BARE.sub(_completed, text)


def _completed(frame: re.Match[str]) -> str:
    margin, file, number = frame.groups()
    try:
        line = linecache.getline(file, int(number)).strip()
    except Exception:  # whatever is at that place
        return frame[0]
    return f"{frame[0]}{margin}  {line}\n" if line else frame[0]
