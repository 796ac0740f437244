"""What a worker calls once before it takes rows, if its host was told to: `scaler_cluster --preload`."""

from __future__ import annotations

from collections.abc import Callable

from scaler.common.call_text import CallText
from scaler.protocol.error_record import cut
from scaler.worker import context, leftovers
from scaler.worker_protocol.messages import FromWorker, Preloading


def run(send: Callable[[FromWorker], None]) -> bool:
    """Make the call, if there is one; False if it has failed. The agent is told by `send`, before and if it fails.

    Main thread only, when the agent has said what surrounds this worker.
    """
    text: str | None = (context.surroundings() or {}).get("preload")
    if text is None:
        return True
    send(Preloading(text))  # it may end this process
    try:
        CallText.parse(text).call()
        leftovers.keep()
    except BaseException as error:  # of the user's
        send(Preloading(text, " ".join(cut(f"{type(error).__name__}: {error}").split())))
        return False
    return True
