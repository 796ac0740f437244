"""Clients that don't read what they are sent: their rows wait until they do, and in the end they are given up.

What they have not acknowledged waits here, so it has a bound (`UNREAD_BYTES` in `protocol/acceptor.py`): beyond it no
more of their rows go to agents, while those of others go on. What is at agents already comes on top: about a tenth of
a second of work for each worker. Those rows may print without end: that is left out.
"""

from collections.abc import Iterator

from scaler.protocol.codes import Stream
from scaler.protocol.messages import TaskOutput
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.client_records import ClientRecord, Unread
from scaler.scheduler.state.cluster import ClusterState

#: bytes a second at which a client's connection carries at least: a large message may take longer than the time-out
SLOWEST = 1e6
#: part of the time-out after which the log tells of a client that reads nothing
WARNED = 0.2


def note(state: ClusterState, out: Outgoing, client: ClientRecord, unread: int, oldest: int) -> None:
    """A client has left so many bytes unread, less than before unless that is news; 0: few enough again."""
    before = client.unread
    if not unread:
        client.unread = None
        if not client.is_held:
            state.queues.release(client.number)
        if before is not None and before.left_out:
            text = f"... {before.left_out:,} characters of output are left out: this program did not read them\n"
            out.send(client.number, TaskOutput(client.number, *before.printed_by, int(Stream.STDERR), text))
        return
    if not client.is_held:
        state.queues.hold(client.number)
    client.unread = Unread(unread, state.now + oldest / SLOWEST)
    if before is not None:
        client.unread.left_out, client.unread.printed_by = before.left_out, before.printed_by


def send_output(out: Outgoing, client: ClientRecord, message: TaskOutput) -> None:
    """Tell a client what its row has printed; if it doesn't read, how much that is when it does."""
    waits = client.unread
    if waits is None:
        out.send(client.number, message)
    else:
        waits.left_out += len(message.text)
        waits.printed_by = message.row, message.name


def overdue(state: ClusterState, out: Outgoing, client_timeout: float) -> Iterator[tuple[int, str]]:
    """The clients that have read nothing for their time-out in seconds, and the words for that; warns of it before."""
    for number, client in list(state.clients.items()):
        waits = client.unread
        if waits is None:
            continue
        silence = state.now - waits.since
        if silence > client_timeout:
            yield number, f"read nothing for {client_timeout:g} s, while {waits.bytes / 1e6:,.0f} MB wait for it"
        elif silence > client_timeout * WARNED and not waits.is_told:
            waits.is_told = True
            out.log(
                "WARNING",
                f"client {number} ({client.name}) does not read, and {waits.bytes / 1e6:,.0f} MB wait for it: "
                f"its rows wait, too, and it is given up after {client_timeout:g} s",
            )
