"""Messages to frames and back. The only module that imports capnp.

`decode` is total: any bytes give a message or one `ProtocolError`. One table, derived from the message classes' own
annotations, drives both directions.
"""

import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import capnp

from scaler.common import standard_descriptors
from scaler.common.utf8 import written_out
from scaler.common.working_directory import standing_somewhere
from scaler.errors import ProtocolError
from scaler.protocol import messages as m
from scaler.protocol.channel import Envelope

assert sys.byteorder == "little", "columns are little-endian on the wire"

standard_descriptors.occupy()  # capnp keeps two directories open
capnp.remove_import_hook()


#: they are to live as long as what is made of their schemas
_parsers: list[Any] = []


def load_schema(name: str) -> Any:
    """What pycapnp makes of a file beside this one. Takes some ms, and three descriptors.

    Not by `capnp.load`: its parser, one for the whole process, stands where it stood when it was first called, with
    descriptors that workers have not got any more. A task that loaded a schema of its own ended its worker by that.
    """
    with standing_somewhere():  # else it ends the process
        _parsers.append(capnp.SchemaParser())
        return _parsers[-1].load(str(Path(__file__).with_name(name)))


_Message = load_schema("scaler.capnp").Message
_FIELDS = _Message.schema.fields
_VERSION, _SEQ, _ACK = (_FIELDS[name] for name in ("version", "seq", "ack"))


#: the union member of each message class
_MEMBERS: dict[type[m.Message], str] = {
    m.Hello: "hello",
    m.Welcome: "welcome",
    m.Refused: "refused",
    m.Ack: "acknowledgement",
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
    m.ObjectGone: "objectGone",
    m.ObjectMissing: "objectMissing",
    m.ObjectFetch: "objectFetch",
    m.ObjectResponse: "objectResponse",
    m.Neighbours: "neighbours",
    m.StoreRequest: "storeRequest",
    m.StoreOffers: "storeOffers",
    m.TaskBegun: "taskBegun",
    m.Inventory: "inventory",
    m.ClientReturn: "clientReturn",
    m.ClientIntroduction: "clientIntroduction",
    m.AgentsInUse: "agentsInUse",
    m.Settled: "settled",
    m.Watch: "watch",
    m.HostReport: "hostReport",
    m.Snapshot: "snapshot",
    m.Query: "query",
    m.QueryResult: "queryResult",
    m.Command: "command",
    m.CommandResult: "commandResult",
    m.Drain: "drain",
    m.JobSubmit: "jobSubmit",
    m.JobQuestion: "jobQuestion",
    m.JobAnswer: "jobAnswer",
    m.PartnerReport: "partnerReport",
    m.JournalState: "journalState",
    m.JournalStart: "journalStart",
    m.JournalSlice: "journalSlice",
    m.JournalSynced: "journalSynced",
    m.TaskHold: "taskHold",
}
MESSAGE_CLASSES = tuple(_MEMBERS)


#: what a message may have as a field
_PARTS: dict[str, type[m.Part]] = {each.__name__: each for each in (m.Spans, m.Objects)}


class Layout(NamedTuple):
    """Where the fields of a message class are in a struct of the schema.

    Fields of the schema are kept as pycapnp's objects: it reads and writes by field four times as fast as by name.
    """

    #: numbers and texts: (name in the class, field)
    plain: list[tuple[str, Any]]
    #: columns: (name, field, typecode)
    columns: list[tuple[str, Any, str]]
    #: lists of texts: (name, field)
    lists: list[tuple[str, Any]]
    #: structs inside a struct, always there: (name, field, class, its struct)
    parts: list[tuple[str, Any, type[m.Part], "Layout"]]
    #: structs of fields that are rarely set, absent when none of them is
    groups: list[tuple[Any, "Layout"]]
    #: the fields of `plain`, `columns` and `lists`, in this order, and what gives their values of a message at once
    wires: list[Any]
    values: Callable[[m.Part], tuple[Any, ...]]


def layout_of(
    cls: type[m.Part], schema: Any, *, names: tuple[str, ...] | None = None, known: Mapping[str, type[m.Part]] = _PARTS
) -> Layout:
    """Where the fields of a class, or those of these names, are in a struct; `known`: what it may have as a field."""
    plain: list[tuple[str, Any]] = []
    columns: list[tuple[str, Any, str]] = []
    lists: list[tuple[str, Any]] = []
    parts: list[tuple[str, Any, type[m.Part], Layout]] = []
    groups: list[tuple[Any, Layout]] = []
    grouped = {name for group in cls.groups.values() for name in group}
    for item in fields(cls):
        if item.name == "bodies" or (item.name in grouped if names is None else item.name not in names):
            continue
        head, *tail = item.name.split("_")
        wire = schema.fields[head + "".join(part.capitalize() for part in tail)]
        kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
        if kind == "array[int]":
            assert callable(item.default_factory)
            columns.append((item.name, wire, item.default_factory().typecode))
        elif kind.startswith("tuple"):
            lists.append((item.name, wire))
        elif kind in known:
            part = known[kind]
            parts.append((item.name, wire, part, layout_of(part, wire.schema, known=known)))
        else:
            plain.append((item.name, wire))
    if names is None:
        for group, members in cls.groups.items():
            wire = schema.fields[group]
            groups.append((wire, layout_of(cls, wire.schema, names=members)))
    own = [(name, wire) for name, wire, *_ in (*plain, *columns, *lists)]
    values = _getter([name for name, _ in own])
    return Layout(plain, columns, lists, parts, groups, [wire for _, wire in own], values)


def _getter(names: list[str]) -> Callable[[m.Part], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


#: member -> (class, field of the union)
_CLASSES = {member: (cls, _FIELDS[member]) for cls, member in _MEMBERS.items()}


@cache
def _layout(member: str) -> Layout | None:
    """The struct of a member of the union, None if it has no fields; made when it is first wanted.

    Most of them are of no use to most programs, and all of them took a program's start 8 ms, and its cluster's as well.
    """
    cls, field = _CLASSES[member]
    return layout_of(cls, field.schema) if fields(cls) else None


def write(struct: Any, layout: Layout, message: m.Part) -> None:
    """Set the fields of a struct."""
    put = struct._set_by_field
    for wire, value in zip(layout.wires, layout.values(message), strict=True):
        if value:
            kind = type(value)
            try:
                put(wire, value.tobytes() if kind is array else list(value) if kind is tuple else value)
            except UnicodeEncodeError:
                put(wire, list(map(written_out, value)) if kind is tuple else written_out(value))
    for name, wire, _, part in layout.parts:
        write(struct.init(wire.proto.name), part, getattr(message, name))
    for wire, group in layout.groups:
        if any(group.values(message)):
            write(struct.init(wire.proto.name), group, message)


def read(struct: Any, layout: Layout) -> dict[str, Any]:
    """The fields of a struct."""
    get = struct._get_by_field
    found = {name: get(wire) for name, wire in layout.plain}
    for name, wire, code in layout.columns:
        found[name] = array(code, get(wire))
    for name, wire in layout.lists:
        found[name] = tuple(get(wire))
    for name, wire, cls, part in layout.parts:
        found[name] = cls(**read(get(wire), part))
    for wire, group in layout.groups:
        if struct._has_by_field(wire):
            found.update(read(get(wire), group))
    return found


def encode(message: m.Message, seq: int = 0, ack: int = 0) -> list[m.Frame]:
    """The frames of a message: its header, then its bodies as they are."""
    cls = type(message)
    root = _Message.new_message()
    root._set_by_field(_VERSION, m.PROTOCOL_VERSION)
    root._set_by_field(_SEQ, seq)
    root._set_by_field(_ACK, ack)
    member = _MEMBERS[cls]
    layout = _layout(member)
    if layout is not None:
        write(root.init(member), layout, message)
    else:
        setattr(root, member, None)
    if cls.has_bodies:
        return [root.to_bytes(), *message.bodies]  # type: ignore[attr-defined]
    return [root.to_bytes()]


def struct_in(frame: m.Frame, kind: Any, what: str) -> Any:
    """The struct of a kind that a frame begins with, which is `what`; what is read of it is copied."""
    if not frame or len(frame) % 8:
        raise ProtocolError(f"not {what}: it has {len(frame)} bytes, and words have 8")
    # the first of the messages in these bytes: pycapnp's way for just one takes five times as long
    return next(kind.read_multiple_bytes(frame if type(frame) is bytes else bytes(frame)))


#: characters of a role of another version, at most
LONGEST_ROLE = 40


def _first_words(root: Any, version: int) -> m.Message:
    """What can be read of a message of another protocol version: who says Hello, and why somebody is refused.

    That these fields stay where they are is all that versions promise each other. Raises `ProtocolError`.
    """
    member, get = root._which_str(), root._get_by_field
    if member == "hello":
        said = get(_CLASSES[member][1])
        if not said.role.isidentifier() or len(said.role) > LONGEST_ROLE:  # another version may have other roles
            raise ProtocolError(f"a Hello of protocol {version} by {said.role[:LONGEST_ROLE]!r}, which is no role")
        return m.Hello(said.role, said.name, said.session, version, said.python, said.packages, "", 0)
    if member == "refused":
        said = get(_CLASSES[member][1])
        return m.Refused(said.reason, said.elsewhere)
    advice = "install the same scaler on both"
    raise ProtocolError(f"a message of protocol {version}, and this is protocol {m.PROTOCOL_VERSION}: {advice}")


def decode(frames: list[m.Frame]) -> Envelope:
    """The message in these frames; `ProtocolError` if they hold none.

    Of another protocol version there is a `Hello` with what it begins with, of that `protocol`, and a `Refused`.
    """
    if not frames:
        raise ProtocolError("a message without frames")
    try:
        root = struct_in(frames[0], _Message, "a message")
        get = root._get_by_field
        version = get(_VERSION)
        if version != m.PROTOCOL_VERSION:
            return Envelope(0, 0, _first_words(root, version))
        member = root._which_str()
        cls, field = _CLASSES[member]
        layout = _layout(member)
        message = cls() if layout is None else cls(**read(get(field), layout))
        seq, ack = get(_SEQ), get(_ACK)
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
        raise ProtocolError(
            f"not a message: {type(problem).__name__}: {str(problem).splitlines()[0][:200] if str(problem) else ''}"
        ) from None
    return Envelope(seq, ack, message)
