"""What a person has to know of a scheduler that is there and does not do all that it should, in a line: pure."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.monitor.formats import duration, inert
from scaler.protocol.messages.cluster_view import SchedulerView


@dataclass(frozen=True)
class Notice:
    """What is to be said, and in how many words where something else is said as well."""

    words: str
    shorter: str
    #: nothing is wrong: worth a word, not a warning
    is_quiet: bool = False


def lacks_standby(scheduler: SchedulerView) -> bool:
    """It leads a pair, and the other one is not heard."""
    return bool(scheduler.partner and scheduler.silence) and not scheduler.stands_by


def notice_of(scheduler: SchedulerView) -> Notice | None:
    """The weightiest one; None if there is nothing to say."""
    other = inert(scheduler.partner)
    if scheduler.trouble:
        return Notice(f"nothing is handed out: {inert(scheduler.trouble)}", "nothing is handed out")
    silent = f"{other} has not been heard for {duration(int(1e6 * scheduler.silence))}" if scheduler.silence else ""
    if scheduler.stands_by:
        words = f"stands by: {silent or f'{other} leads, and has the agents and clients'}"
        return Notice(words, "stands by", is_quiet=not silent)
    if lacks_standby(scheduler):
        return Notice(f"nobody stands by: {silent}", "nobody stands by")
    if scheduler.awaited:
        return Notice(f"awaited: {inert(scheduler.awaited)}", "awaited", is_quiet=True)
    return None
