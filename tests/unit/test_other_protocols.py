"""What can be read of peers of another protocol version, however much else has changed."""

from pathlib import Path
from typing import Any

import capnp
import pytest

from scaler.errors import ProtocolError
from scaler.protocol.acceptor import Acceptor, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Initiator, Rejected
from scaler.protocol.messages import PROTOCOL_VERSION, Hello, Refused
from scaler.version import __version__

#: all that docs/protocol.md promises for ever, and what another version may have besides
ANOTHER = """
@0xb1a7d5b3e2f40918;
struct Message {
  version @0 :UInt16;
  other @1 :Float64;
  another @2 :UInt64;
  union {
    hello @3 :Hello;
    something @4 :Text;
    refused @5 :Refused;
    new @6 :Refused;
  }
  more @7 :List(Text);
}
struct Hello {
  role @0 :Text;
  name @1 :Text;
  session @2 :UInt64;
  protocol @3 :UInt16;
  python @4 :Text;
  packages @5 :Text;
  quiteAnother @6 :UInt64;
  andAnother @7 :List(Float64);
}
struct Refused {
  reason @0 :Text;
  elsewhere @1 :Bool;
  since @2 :Float64;
}
"""


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = Path(tmp_path_factory.mktemp("schema")) / "another.capnp"
    path.write_text(ANOTHER)
    return capnp.load(str(path)).Message


def message(another: Any, **fields: Any) -> list[bytes]:
    return [another.new_message(version=7, other=1.5, more=["x"], **fields).to_bytes(), b"a frame"]


def test_a_hello_of_another_version_says_who_it_is(another: Any) -> None:
    hello = {
        "role": "observer", "name": "n", "session": 9, "protocol": 7, "python": "3.20",
        "packages": "scaler=9.1 cloudpickle=5", "quiteAnother": 1, "andAnother": [1.0],
    }  # fmt: skip
    said = decode(message(another, hello=hello))
    assert said == Envelope(0, 0, Hello("observer", "n", 9, 7, "3.20", "scaler=9.1 cloudpickle=5", "", 0))


def test_a_refusal_of_another_version_says_why(another: Any) -> None:
    said = decode(message(another, refused={"reason": "go away", "elsewhere": True, "since": 1.0}))
    assert said == Envelope(0, 0, Refused("go away", True))


@pytest.mark.parametrize("fields", [{"new": {"reason": "x"}}, {"something": "x"}], ids=["new", "changed"])
def test_all_else_is_no_message_and_is_told_what_to_do(another: Any, fields: Any) -> None:
    words = f"a message of protocol 7, and this is protocol {PROTOCOL_VERSION}: install the same scaler on both"
    with pytest.raises(ProtocolError, match=words):
        decode(message(another, **fields))


def test_another_version_reads_what_this_one_says(another: Any) -> None:
    hello = hello_of("agent", "host", 5, packages="scaler=0.1 cloudpickle=3")
    (header,) = encode(hello)
    read = next(another.read_multiple_bytes(header))
    assert (read.version, read.which()) == (PROTOCOL_VERSION, "hello")
    assert (read.hello.role, read.hello.name, read.hello.session) == ("agent", "host", 5)
    assert (read.hello.python, read.hello.packages) == (hello.python, hello.packages)
    refused = next(another.read_multiple_bytes(encode(Refused("no", True))[0]))
    assert (refused.which(), refused.refused.reason, refused.refused.elsewhere) == ("refused", "no", True)


def test_a_scheduler_refuses_it_in_words_and_closes(another: Any) -> None:
    acceptor = Acceptor(Terms(3, PROTOCOL_VERSION, True, 1.0, 10.0, 10.0, 1 << 20))
    hello = {"role": "agent", "name": "host", "session": 9, "protocol": 7, "packages": "scaler=9.1"}
    assert acceptor.receive(1, decode(message(another, hello=hello)), 0) == ()
    words = f"this agent (scaler 9.1) speaks protocol 7, the scheduler (scaler {__version__}) protocol "
    words += f"{PROTOCOL_VERSION}: install the same scaler on both"
    ((connection, _, _, refused, last),) = acceptor.outgoing
    assert (connection, refused, last) == (1, Refused(words), True)
    assert [(each.role, each.name, each.reason) for each in acceptor.turned_away] == [("agent", "host", words)]


def test_whoever_is_refused_by_another_version_hears_why(another: Any) -> None:
    initiator = Initiator(hello_of("agent", "host", 5))
    initiator.greet(0.0)
    said = initiator.receive(decode(message(another, refused={"reason": "another protocol"})), 0.1)
    assert said == Rejected("another protocol")
