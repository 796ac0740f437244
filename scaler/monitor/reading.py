"""From a `Snapshot` message to what readers use; any frames give a snapshot or one `ProtocolError`."""

from scaler.errors import ProtocolError
from scaler.monitor.snapshot import Snapshot
from scaler.protocol.messages import Malformed, unpack
from scaler.protocol.messages import Snapshot as SnapshotMessage
from scaler.protocol.views import decode_view


def decoded(message: SnapshotMessage) -> Snapshot:
    """What a scheduler has shown. Raises `ProtocolError`."""
    view = decode_view(message.bodies[0])
    try:
        snapshot = Snapshot(message.number, view, unpack(message.bodies[1], view.agents.worker_counts))
        snapshot.validate()
    except Malformed as problem:
        raise ProtocolError(f"a malformed Snapshot: {problem}") from None
    return snapshot
