"""Roots: clients that others submit tasks for, since those others are in tasks of theirs. See `core/roots.py`."""

from dataclasses import field

from scaler.common.records import record


@record
class Roots:
    """What is known of roots: one may be away, or, after a restart, of another cluster."""

    #: root -> numbers of the clients that have submitted tasks for it; a dict serves as an ordered set
    members: dict[int, dict[int, None]] = field(default_factory=dict)
    #: clients that have left, the last ones, in order: what is submitted for one is cancelled. With each those who had
    #: submitted tasks for it: these may not have ended when it comes back
    gone: dict[int, dict[int, None]] = field(default_factory=dict)
