"""Ctrl-C while a program is still being loaded ends it, as it ends programs in other languages: without a traceback.

Python makes an exception of it, which nobody catches before there is a `main` to do so.
"""

from __future__ import annotations

import signal

_has_begun = False


def begin() -> None:
    """From now on Ctrl-C ends this process at once, unless it is ignored here. For the first lines of a program."""
    global _has_begun
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _has_begun = True


def end() -> None:
    """From now on it is KeyboardInterrupt again, if `begin` has changed that: somebody catches it."""
    global _has_begun
    if _has_begun:
        _has_begun = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
