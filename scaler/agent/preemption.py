"""Asking a cloud's metadata service now and then whether this host is about to be taken away.

Such a service answers at an address that it names with 404 until there is something to say. Some always answer, and
say FALSE meanwhile. What else it answers (it wants a token, it is out of order) is no notice, and is logged once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from scaler.common.loop import Loop

logger = logging.getLogger("scaler.agent")

#: seconds between two questions, and for which an answer is waited for
INTERVAL, PATIENCE = 5.0, 2.0
#: bytes of an answer that are read, at most
MOST = 1024


def watch_for_notice(url: str, loop: Loop, tell: Callable[[], None], interval: float = INTERVAL) -> None:
    """Have `tell` called in the loop's thread, once, when the service at `url` announces the end of this host."""
    seen, show = os.pipe()

    def noticed() -> None:
        os.read(seen, 1)
        loop.forget(seen)
        tell()

    loop.watch_with(seen, noticed)
    threading.Thread(target=_ask, args=(url, show, interval), name="scaler-preemption", daemon=True).start()


def _ask(url: str, show: int, interval: float) -> None:
    last = ""
    while True:
        is_noticed, trouble = announces(url)
        if is_noticed:
            logger.info("%s announces the end of this host", url)
            os.write(show, b"x")
            return
        if trouble and trouble != last:
            logger.warning("%s (--preemption-url): %s; asked again every %g s", url, trouble, interval)
        last = trouble
        time.sleep(interval)


def announces(url: str) -> tuple[bool, str]:
    """Whether the service announces the end of this host; and what is wrong with its answer, in words. Blocks."""
    from http.client import HTTPException  # here, as few want it and all would load it
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            return answer.read(MOST).strip().upper() != b"FALSE", ""
    except HTTPError as error:
        return False, "" if error.code == 404 else f"answered {error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return False, f"does not answer ({error})"
    except HTTPException as error:
        return False, f"answers what is no HTTP ({type(error).__name__}: {error})"
