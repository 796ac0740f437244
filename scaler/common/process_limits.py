"""Limits of a process, in words for who runs into them."""

from __future__ import annotations

import errno
import math
import os
import resource

from scaler.common.control_groups import content_of, groups_of


def words_of(error: BaseException) -> str:
    """What an error says; of one where there are too few descriptors or processes, also which limit that is."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return f"{error}: {_of_processes()}"
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return f"{error}: {_of_processes()}"
    if not isinstance(error, OSError) or error.errno != errno.EMFILE:
        return str(error)
    return f"{error}: {limit_of_descriptors()}"


def is_lack(error: BaseException) -> bool:
    """This process, or the system, has too few descriptors or too little memory just now: later it may have enough."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def limit_of_descriptors() -> str:
    """How many descriptors this process may have, and how it may have more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "" if hard == resource.RLIM_INFINITY else f" up to {hard:,}" if soft < hard else " for root"
    return f"a process may have {soft:,} open here (RLIMIT_NOFILE); `ulimit -n` raises that{most}"


def _of_processes() -> str:
    """How many processes and threads there may be, as far as that can be seen."""
    limits = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        limits.append(f"this user may have {soft:,} (RLIMIT_NPROC; `ulimit -u` raises that)")
    for directory, _ in groups_of("pids"):
        most = content_of(directory, "pids.max").strip()
        if most.isdigit():
            now = content_of(directory, "pids.current").strip().decode() or "some"
            limits.append(f"the control group {directory} may have {int(most):,}, and has {now} (pids.max)")
    return f"no more processes or threads may be started here: {'; '.join(limits) or 'no limit of them can be seen'}"


#: descriptors that a process with many connections keeps free for what else it opens
_RESERVE = 16
#: one that may have few keeps a part of them
_RESERVE_PART = 4


def usable(descriptors: int) -> int:
    """How many descriptors a process that may have so many has before it takes no more connections."""
    return descriptors - min(_RESERVE, descriptors // _RESERVE_PART)


def open_descriptors() -> int:
    """How many this process has, or at least so many where nobody tells. Raises OSError if it can have no more."""
    try:
        return len(os.listdir("/dev/fd")) - 1
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
    free = os.open(os.devnull, os.O_RDONLY)  # as without /proc: the lowest number is given out first
    os.close(free)
    return free


def lack_of_descriptors(more: int) -> str:
    """Why this process, whose sockets are open, can't have so many descriptors more; empty if it can."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = open_descriptors()
    needed = limit_for(opened + more)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    return (
        f"a process may have {soft:,} descriptors open here (RLIMIT_NOFILE), this one has {opened:,}, and needs "
        f"{needed:,} at least; `ulimit -n` raises that"
    )


def limit_for(descriptors: int) -> int:
    """How many descriptors a process has to be allowed so that so many are usable.

    >>> limit_for(30), usable(40), limit_for(100), usable(116)
    (40, 30, 116, 100)
    """
    return min(descriptors + _RESERVE, -(-descriptors * _RESERVE_PART // (_RESERVE_PART - 1)))


def most_descriptors() -> float:
    """How many descriptors this process may have if it asks for them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if hard == resource.RLIM_INFINITY else hard


def allow_descriptors(wanted: int) -> None:
    """Have this process may have so many descriptors, or as many as it may ask for; never fewer than before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, int(min(wanted, most_descriptors()))), hard))


def largest_file() -> int | None:
    """Bytes that a file of this process may have; None for no limit."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if most == resource.RLIM_INFINITY else most
