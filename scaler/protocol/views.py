"""Clusters as monitors see them, to frames and back. Apart from `codec`, as most programs are never shown one."""

from scaler.errors import ProtocolError
from scaler.protocol.codec import layout_of, load_schema, read, write
from scaler.protocol.messages import Frame, Malformed
from scaler.protocol.messages.cluster_view import (
    AgentColumns,
    ClientColumns,
    ClusterView,
    DemandColumns,
    FleetColumns,
    FunctionColumns,
    ObjectColumns,
    RowCounts,
    SchedulerView,
)

_PARTS = {
    each.__name__: each
    for each in (
        SchedulerView, RowCounts, AgentColumns, ClientColumns, FunctionColumns, ObjectColumns, DemandColumns,
        FleetColumns,
    )
}  # fmt: skip
_ClusterView = load_schema("cluster_view.capnp").ClusterView
_LAYOUT = layout_of(ClusterView, _ClusterView.schema, known=_PARTS)


def encode_view(view: ClusterView) -> bytes:
    """The frame of a `Snapshot`."""
    root = _ClusterView.new_message()
    write(root, _LAYOUT, view)
    encoded: bytes = root.to_bytes()
    return encoded


def decode_view(frame: Frame) -> ClusterView:
    """What a `Snapshot` shows; `ProtocolError` if its frame shows nothing."""
    try:
        if not frame or len(frame) % 8:
            raise ProtocolError(f"not a view of a cluster: it has {len(frame)} bytes, and words have 8")
        root = next(_ClusterView.read_multiple_bytes(bytes(frame)))
        view = ClusterView(**read(root, _LAYOUT))
        view.validate()
    except ProtocolError:
        raise
    except Malformed as problem:
        raise ProtocolError(f"a malformed view of a cluster: {problem}") from None
    except Exception as problem:  # capnp raises many kinds, as in `decode`
        raise ProtocolError(f"not a view of a cluster: {type(problem).__name__}") from None
    return view
