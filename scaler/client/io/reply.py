"""The scheduler's answer to a goodbye, or to the request to shut down."""

from __future__ import annotations

from scaler.common.gate import Gate
from scaler.protocol.messages import DisconnectResponse, ShutdownResponse


class Reply:
    """One thread expects it; the I/O thread brings it."""

    def __init__(self) -> None:
        self._has_come = Gate()
        self._message: DisconnectResponse | ShutdownResponse | None = None
        #: it is to a goodbye: a closed connection will do
        self.is_to_goodbye = False

    def expect(self, is_to_goodbye: bool) -> None:
        """A question is going to be sent."""
        self._message = None
        self._has_come.close()
        self.is_to_goodbye = is_to_goodbye

    def arrive(self, message: DisconnectResponse | ShutdownResponse | None) -> None:
        """The answer has come; None: it never will."""
        self._message = message
        self._has_come.open()

    def wait(self, timeout: float) -> bool:
        """Block for at most so many seconds; whether there is an answer, or will be none."""
        return self._has_come.wait(timeout)

    @property
    def refusal(self) -> str | None:
        """Why the cluster is not shut down; None if it is."""
        message = self._message
        return message.reason if isinstance(message, ShutdownResponse) and not message.accepted else None
