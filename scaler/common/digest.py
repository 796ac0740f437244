"""Short digests of bytes, and comparing secrets, as `hashlib` and `hmac` do.

Both load what OpenSSL has, which is not used here and takes 3 ms of a cluster's start.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
    from _operator import _compare_digest as compare_digest
except ImportError:  # another Python than CPython
    from hashlib import blake2b
    from hmac import compare_digest  # type: ignore[no-redef]

__all__ = ["blake2b", "compare_digest"]
