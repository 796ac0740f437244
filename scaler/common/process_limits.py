"""Limits of a process, in words for who runs into them."""

from __future__ import annotations

import errno
import resource


def words_of(error: BaseException) -> str:
    """What an error says; of one since a process has no descriptors left, which limit that is and how it is raised."""
    if not isinstance(error, OSError) or error.errno != errno.EMFILE:
        return str(error)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "" if hard == resource.RLIM_INFINITY else f" up to {hard:,}" if soft < hard else " for root"
    return f"{error}: a process may have {soft:,} open here (RLIMIT_NOFILE); `ulimit -n` raises that{most}"


def largest_file() -> int | None:
    """Bytes that a file of this process may have; None for no limit."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if most == resource.RLIM_INFINITY else most
