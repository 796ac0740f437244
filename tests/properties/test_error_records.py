"""An error record survives the wire, and any bytes are a record or one ProtocolError."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.errors import ProtocolError
from scaler.protocol.error_record import ErrorKind, ErrorRecord

CAREFULLY = settings(max_examples=3 * settings().max_examples)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
RECORDS = st.builds(
    ErrorRecord,
    kind=st.sampled_from(list(ErrorKind)),
    message=TEXTS,
    function=TEXTS,
    type_name=TEXTS,
    traceback=TEXTS,
    exception=st.binary(max_size=300),
    encoding=st.integers(0, 255),
    notes=st.lists(TEXTS, max_size=4).map(tuple),
)


def attempt(data: bytes) -> None:
    """Decode; anything but a record or a ProtocolError fails the test."""
    try:
        record = ErrorRecord.decode(data)
    except ProtocolError as error:
        said = str(error)
        assert said
        assert "\n" not in said
    else:
        assert record.encode() == data


@CAREFULLY
@given(record=RECORDS)
def test_a_record_survives_the_wire(record: ErrorRecord) -> None:
    assert ErrorRecord.decode(record.encode()) == record
    assert ErrorRecord.decode(memoryview(record.encode())) == record


@given(record=RECORDS, note=TEXTS)
def test_a_note_comes_behind_the_others(record: ErrorRecord, note: str) -> None:
    noted = ErrorRecord.decode(record.with_note(note).encode())
    assert noted.notes == (*record.notes, note)
    assert noted._replace(notes=record.notes) == record


@CAREFULLY
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused_in_one_line(data: bytes) -> None:
    attempt(data)
    attempt(b"\x01\x00\x00" + data)


@CAREFULLY
@given(record=RECORDS, data=st.data())
def test_a_damaged_record_is_a_record_or_refused(record: ErrorRecord, data: st.DataObject) -> None:
    damaged = bytearray(record.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    attempt(bytes(damaged))


def test_a_record_of_another_version_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="of version 2; this is version 1"):
        ErrorRecord.decode(b"\x02" + ErrorRecord(ErrorKind.LOST).encode()[1:])


def test_texts_that_are_no_utf8_are_escaped() -> None:
    record = ErrorRecord(ErrorKind.RAISED, "\ud800", notes=("\udfff",))
    assert ErrorRecord.decode(record.encode()) == record._replace(message="\\ud800", notes=("\\udfff",))


def test_the_layout_is_what_is_written_down() -> None:
    record = ErrorRecord(ErrorKind.TIMEOUT, "message", "f", "T", "tb", b"\x80x", 7, ("n",))

    def text(data: bytes) -> bytes:
        return struct.pack("<I", len(data)) + data

    texts = text(b"T") + text(b"message") + text(b"tb") + text(b"f")
    assert record.encode() == bytes([1, 2, 7]) + texts + text(b"\x80x") + struct.pack("<I", 1) + text(b"n")
