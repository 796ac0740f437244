"""Who was turned away before a word was said, and why, from what ZeroMQ's monitor tells of a listener's handshakes.

Pure. Each failure comes right before the end of its connection, since one thread tells of both. Those that went well
are told without their connection, so they are counted: an end without a failure, of a connection over which nothing
came, is that of somebody who spoke no ZeroMQ only if no such count is left. Of those who hang up by themselves nothing
is said, as most only look whether anybody listens; somebody without a key, or the only one with one, may be among them.
"""

from __future__ import annotations

import zmq

#: why somebody was turned away, said behind "refused a connection from 10.0.0.7: "
OTHER_KEY = "it has another key"
NO_KEY = "it has no key (--insecure), or is no program of scaler"
NO_KEY_HERE = "it has a key, and this program none (--insecure)"
NO_HANDSHAKE = "what it sent is no handshake of scaler (a browser, TLS, a port scan?)"

_WHY: dict[int, str] = {
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: OTHER_KEY,
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: NO_KEY,
}


class Handshakes:
    """Those of one listener."""

    def __init__(self, insecure: bool) -> None:
        """Whether everybody may enter, without a key."""
        self._insecure = insecure
        #: how the one went wrong whose connection ends next: what the monitor told, and its number for why
        self._failure: tuple[int, int] | None = None
        #: those that came to an answer, over whose connections nothing has come yet
        self._done = 0

    def hear(self, event: int, value: int) -> None:
        """The monitor tells something."""
        if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_HANDSHAKE_FAILED_AUTH):
            self._done += 1  # who was refused by its key was told of when ZeroMQ asked for it
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL):
            self._failure = event, value

    def speak(self) -> None:
        """The first message came over a connection that is open."""
        self._done = max(0, self._done - 1)

    def end(self, has_spoken: bool) -> str | None:
        """A connection has ended: why its visitor was turned away; None if it was not."""
        failure, self._failure = self._failure, None
        if has_spoken:
            return None
        if failure is None and self._done:
            self._done -= 1
            return None
        if failure is None:
            return NO_HANDSHAKE
        event, code = failure
        if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return None
        why = _WHY.get(code, NO_HANDSHAKE)
        return NO_KEY_HERE if why == NO_KEY and self._insecure else why
