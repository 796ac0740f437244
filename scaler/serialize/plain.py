"""Types that are known by themselves."""

from __future__ import annotations

import functools

#: Exact types whose values are immutable and are written by the C pickler alone. Lists of results hold no others, and
#: `scaler.protocol.value_list` knows how each is written.
SCALARS = frozenset({int, float, str, bytes, bool, type(None), complex})

#: of what `functools.lru_cache` makes
LruCache = type(functools.lru_cache(len))
