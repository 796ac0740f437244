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

Write = Callable[[Any, Any, Any], None]
Read = Callable[[Any], Any]


class _Field(NamedTuple):
    name: str  # in the dataclass
    wire: Any  # in the schema: pycapnp reads and writes by field four times as fast as by name
    write: Write
    read: Read | None  # None: as it is


def _write_plain(struct: Any, wire: Any, value: Any) -> None:
    if value:
        struct._set_by_field(wire, value)


def _write_column(struct: Any, wire: Any, value: "array[int]") -> None:
    if value:
        struct._set_by_field(wire, value.tobytes())


def _write_list(struct: Any, wire: Any, value: tuple[str, ...]) -> None:
    if value:
        struct._set_by_field(wire, list(value))


def _reader_of_column(code: str) -> Read:
    def read(value: bytes) -> "array[int]":
        return array(code, value)

    return read


def _field(name: str, annotation: str, default: Any, wire: Any) -> _Field:
    if annotation == "array[int]":
        return _Field(name, wire, _write_column, _reader_of_column(default.typecode))
    if annotation.startswith("tuple"):
        return _Field(name, wire, _write_list, tuple)
    if annotation == "Spans":
        return _Field(name, wire, _write_spans, lambda struct: _read(m.Spans, struct))
    return _Field(name, wire, _write_plain, None)


def _write_spans(struct: Any, wire: Any, value: m.Spans) -> None:
    _write(struct.init(wire.proto.name), value)


def _table(cls: type[m.Message], schema: Any) -> list[_Field]:
    table = []
    for item in fields(cls):
        if item.name == "bodies":
            continue
        annotation = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
        default = item.default_factory() if callable(item.default_factory) else None
        head, *tail = item.name.split("_")
        wire = schema.fields[head + "".join(part.capitalize() for part in tail)]
        table.append(_field(item.name, annotation, default, wire))
    return table


def _struct_of(member: str) -> Any:
    field = _Message.schema.fields[member]
    return field.schema if field.proto.slot.type.which() == "struct" else None


_ROOT = _Message.schema.fields
_TABLES: dict[type[m.Message], list[_Field]] = {m.Spans: _table(m.Spans, _schema.Spans.schema)}
for _cls, _member in _MEMBERS.items():
    _TABLES[_cls] = _table(_cls, _struct_of(_member))
#: member -> (class, field of the union, table)
_CLASSES = {member: (cls, _ROOT[member], _TABLES[cls]) for cls, member in _MEMBERS.items()}


def _write(struct: Any, message: m.Message) -> None:
    for name, wire, write, _ in _TABLES[type(message)]:
        write(struct, wire, getattr(message, name))


def _read(cls: type[m.Message], struct: Any) -> m.Message:
    get = struct._get_by_field
    return cls(*[get(wire) if read is None else read(get(wire)) for _, wire, _, read in _TABLES[cls]])


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
        header = frames[0]
        with _Message.from_bytes(header if type(header) is bytes else bytes(header)) as root:
            version = root.version
            if version != m.PROTOCOL_VERSION:
                raise ProtocolError(f"a message of protocol version {version}; this is version {m.PROTOCOL_VERSION}")
            cls, member, table = _CLASSES[root._which_str()]
            message = _read(cls, root._get_by_field(member)) if table else cls()
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
