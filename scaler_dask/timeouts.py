"""How long to wait, in the forms that dask's users say it."""

from __future__ import annotations

import datetime
import math

from dask.utils import parse_timedelta


def seconds_of(timeout: float | str | datetime.timedelta | None) -> float | None:
    """Seconds of 1.5, "2 min" or a timedelta; None, or `math.inf`, which dask itself does not take, for ever.

    >>> seconds_of("2 min"), seconds_of(math.inf)
    (120, inf)
    """
    seconds: float | None = math.inf if timeout == math.inf else parse_timedelta(timeout)
    return seconds
