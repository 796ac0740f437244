"""What a worker calls once before its first row, if its host was told to: `scaler_cluster --preload`."""

from __future__ import annotations

import sys

from scaler.common.call_text import CallText
from scaler.protocol import failures
from scaler.worker import context, leftovers


class Preload:
    """The call, and what became of it. Main thread only."""

    def __init__(self) -> None:
        self._is_done = False
        #: the error record of all rows, since the call has failed
        self.failure: bytes | None = None

    def run(self) -> None:
        """Make the call, if there is one and it was not made."""
        if self._is_done:
            return
        about = context.surroundings()
        if about is None:
            return  # the agent has said nothing yet
        self._is_done = True
        text = about.get("preload")
        if text is None:
            return
        try:
            CallText.parse(text).call()
            leftovers.keep()
        except BaseException as error:  # of the user's
            in_one_line = " ".join(f"{type(error).__name__}: {error}".split())
            self.failure = failures.preload_failed(text, in_one_line).encode()
            # for who runs this host, which takes and fails tasks faster than others run them
            sys.stderr.write(f"--preload {text} failed, and with it all tasks of this worker: {in_one_line}\n")
