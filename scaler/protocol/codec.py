"""Messages to frames and back. The only module that imports capnp.

`decode` is total: any bytes give a message or one `ProtocolError`.
"""

import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import capnp

from scaler.common import standard_descriptors
from scaler.common.working_directory import standing_somewhere
from scaler.errors import ProtocolError
from scaler.protocol import messages as m
from scaler.protocol.channel import Envelope
from scaler.protocol.layouts import Layout, layout_of

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


#: member -> (class, field of the union)
_CLASSES = {member: (cls, _FIELDS[member]) for cls, member in _MEMBERS.items()}


@cache
def _layout(member: str) -> Layout | None:
    """The struct of a member of the union, None if it has no fields; made when it is first wanted.

    Most of them are of no use to most programs, and all of them took a program's start 8 ms, and its cluster's as well.
    """
    cls, field = _CLASSES[member]
    return layout_of(cls, field.schema) if fields(cls) else None


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
        layout.write(root._init_by_field(_CLASSES[member][1]), message)
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
#: characters of what is said of bytes that are no message: they may be quoted in it, and are logged and sent back
_LONGEST_TROUBLE = 300


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
        message: Any = cls() if layout is None else layout.read(get(field))
        seq, ack = get(_SEQ), get(_ACK)
        if cls.has_bodies:
            message.bodies = frames[1:]
        elif len(frames) > 1:
            raise ProtocolError(f"{cls.__name__} has no payload frames, {len(frames) - 1} came with it")
        message.validate()
    except ProtocolError:
        raise
    except m.Malformed as problem:
        raise ProtocolError(f"a malformed {cls.__name__}: {problem}"[:_LONGEST_TROUBLE]) from None
    except Exception as problem:  # capnp raises many kinds; whatever it is, these bytes are no message
        raise ProtocolError(
            f"not a message: {type(problem).__name__}: {''.join(str(problem).splitlines()[:1])}"[:_LONGEST_TROUBLE]
        ) from None
    return Envelope(seq, ack, message)
