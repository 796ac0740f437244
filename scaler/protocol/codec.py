"""Messages to frames and back. The only module that imports capnp.

`decode` is total: any bytes give a message or one `ProtocolError`. One table, derived from the message classes' own
annotations, drives both directions.
"""

import sys
from array import array
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import capnp

from scaler.errors import ProtocolError
from scaler.protocol import messages as m

assert sys.byteorder == "little", "columns are little-endian on the wire"

capnp.remove_import_hook()
_schema = capnp.load(str(Path(__file__).with_name("scaler.capnp")))
_Message = _schema.Message


class Envelope(NamedTuple):
    """A message with its place in the sequence of its session."""

    seq: int
    ack: int
    message: m.Message


#: the union member of each message class
_MEMBERS: dict[type[m.Message], str] = {
    m.Hello: "hello",
    m.Welcome: "welcome",
    m.Refused: "refused",
    m.Ack: "ack2",
    m.Task: "task",
    m.TaskResult: "taskResult",
    m.TaskCancel: "taskCancel",
    m.TaskRunning: "taskRunning",
    m.TaskClaim: "taskClaim",
    m.TaskClaimResponse: "taskClaimResponse",
    m.TaskOutput: "taskOutput",
    m.BalanceRequest: "balanceRequest",
    m.BalanceResponse: "balanceResponse",
    m.ObjectAnnounce: "objectAnnounce",
    m.ObjectRelease: "objectRelease",
    m.ObjectRequest: "objectRequest",
    m.Heartbeat: "heartbeat",
    m.HeartbeatEcho: "heartbeatEcho",
    m.ClientDeparture: "clientDeparture",
    m.DisconnectRequest: "disconnectRequest",
    m.DisconnectResponse: "disconnectResponse",
    m.ClientShutdown: "clientShutdown",
    m.ShutdownResponse: "shutdownResponse",
    m.ClientClear: "clientClear",
}
MESSAGE_CLASSES = tuple(_MEMBERS)

_COLUMN_CODES = {"u64": "Q", "u32": "I", "i32": "i", "u8": "B"}

Write = Callable[[Any, str, Any], None]
Read = Callable[[Any], Any]


class _Field(NamedTuple):
    name: str  # in the dataclass
    wire: str  # in the schema
    write: Write
    read: Read


def _write_column(struct: Any, wire: str, value: "array[int]") -> None:
    if value:
        setattr(struct, wire, value.tobytes())


def _write_list(struct: Any, wire: str, value: tuple[str, ...]) -> None:
    if value:
        setattr(struct, wire, list(value))


def _reader_of_column(code: str) -> Read:
    def read(value: bytes) -> "array[int]":
        column = array(code)
        column.frombytes(value)
        return column

    return read


def _field(cls: type[m.Message], name: str, annotation: str, default: Any) -> _Field:
    head, *tail = name.split("_")
    wire = head + "".join(part.capitalize() for part in tail)
    if annotation == "array[int]":
        code = default.typecode if default is not None else "I"
        return _Field(name, wire, _write_column, _reader_of_column(code))
    if annotation.startswith("tuple"):
        return _Field(name, wire, _write_list, tuple)
    if annotation == "Spans":
        return _Field(name, wire, _write_spans, lambda struct: _read(m.Spans, struct))
    return _Field(name, wire, setattr, lambda value: value)


def _write_spans(struct: Any, wire: str, value: m.Spans) -> None:
    _write(struct.init(wire), value)


def _table(cls: type[m.Message]) -> list[_Field]:
    table = []
    for item in fields(cls):
        if item.name == "bodies":
            continue
        annotation = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
        default = item.default_factory() if callable(item.default_factory) else None
        table.append(_field(cls, item.name, annotation, default))
    return table


_TABLES = {cls: _table(cls) for cls in (*_MEMBERS, m.Spans)}
_CLASSES = {member: cls for cls, member in _MEMBERS.items()}


def _write(struct: Any, message: m.Message) -> None:
    for name, wire, write, _ in _TABLES[type(message)]:
        write(struct, wire, getattr(message, name))


def _read(cls: type[m.Message], struct: Any) -> m.Message:
    return cls(**{name: read(getattr(struct, wire)) for name, wire, _, read in _TABLES[cls]})


def encode(message: m.Message, seq: int = 0, ack: int = 0) -> list[m.Frame]:
    """The frames of a message: its header, then its bodies as they are."""
    cls = type(message)
    root = _Message.new_message(version=m.PROTOCOL_VERSION, seq=seq, ack=ack)
    member = _MEMBERS[cls]
    if _TABLES[cls]:
        _write(root.init(member), message)
    else:
        setattr(root, member, None)
    if cls.has_bodies:
        return [root.to_bytes(), *message.bodies]  # type: ignore[attr-defined]
    return [root.to_bytes()]


def decode(frames: list[m.Frame]) -> Envelope:
    """The message in these frames; `ProtocolError` if they hold none."""
    if not frames:
        raise ProtocolError("a message without frames")
    try:
        with _Message.from_bytes(bytes(frames[0])) as root:
            version = root.version
            if version != m.PROTOCOL_VERSION:
                raise ProtocolError(f"a message of protocol version {version}; this is version {m.PROTOCOL_VERSION}")
            member = root.which()
            cls = _CLASSES[str(member)]
            message = _read(cls, getattr(root, str(member))) if _TABLES[cls] else cls()
            seq, ack = root.seq, root.ack
        if cls.has_bodies:
            message.bodies = frames[1:]  # type: ignore[attr-defined]
        elif len(frames) > 1:
            raise ProtocolError(f"{cls.__name__} has no payload frames, {len(frames) - 1} came with it")
        message.validate()
    except ProtocolError:
        raise
    except m.Malformed as problem:
        raise ProtocolError(f"a malformed {cls.__name__}: {problem}") from None
    except Exception as problem:  # capnp raises many kinds; whatever it is, these bytes are no message
        raise ProtocolError(f"not a message: {type(problem).__name__}: {str(problem).splitlines()[0][:200] if str(problem) else ''}") from None
    return Envelope(seq, ack, message)
