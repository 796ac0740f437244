"""Clusters as monitors see them, to frames and back. Apart from `codec`, as most programs are never shown one."""

from scaler.errors import ProtocolError
from scaler.protocol.codec import load_schema, struct_in
from scaler.protocol.layouts import layout_of
from scaler.protocol.messages import Frame, Malformed, Part, cluster_view
from scaler.protocol.messages.cluster_view import ClusterView

_PARTS = {name: each for name, each in vars(cluster_view).items() if isinstance(each, type) and issubclass(each, Part)}
_ClusterView = load_schema("cluster_view.capnp").ClusterView
_LAYOUT = layout_of(ClusterView, _ClusterView.schema, known=_PARTS)


def encode_view(view: ClusterView) -> bytes:
    """The frame of a `Snapshot`."""
    root = _ClusterView.new_message()
    _LAYOUT.write(root, view)
    encoded: bytes = root.to_bytes()
    return encoded


def decode_view(frame: Frame) -> ClusterView:
    """What a `Snapshot` shows; `ProtocolError` if its frame shows nothing."""
    try:
        view: ClusterView = _LAYOUT.read(struct_in(frame, _ClusterView, "a view of a cluster"))
        view.validate()
    except ProtocolError:
        raise
    except Malformed as problem:
        raise ProtocolError(f"a malformed view of a cluster: {problem}") from None
    except Exception as problem:  # capnp raises many kinds, as in `decode`
        raise ProtocolError(f"not a view of a cluster: {type(problem).__name__}") from None
    return view
