"""Segments of a journal that are in memory: read as those of a directory are."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from scaler.journal import records
from scaler.journal.directory import Damage
from scaler.journal.layout import Layout, Place
from scaler.journal.records import SEGMENT_HEADER, Damaged, Record


def replay(
    segments: dict[int, bytearray], take: Callable[[Record, Place], None], most: int
) -> tuple[Layout, Damage | None]:
    """What `Journal.replay` does: what is behind a damage is gone. `most`: bytes of a segment."""
    layout, damage = Layout(most=most), None
    for number in sorted(segments):
        data, at = memoryview(bytes(segments[number])), 0
        if damage is not None:
            del segments[number]
            continue
        try:
            records.check_segment(data, number)
            at = SEGMENT_HEADER
            while at < len(data):
                record, end = records.read(data, at)
                take(record, Place(number, at))
                at = end
        except Damaged as why:
            damage = Damage(Path(f"{number:08d}.log"), at, str(why), True, 0)
            del segments[number][at:]
            if at < SEGMENT_HEADER:
                del segments[number]
    if segments:
        layout.segment = max(segments)
        layout.offset = len(segments[layout.segment])
    return layout, damage


def records_of(segments: Mapping[int, bytes | bytearray]) -> list[tuple[int, Record]]:
    """All records up to the end of what can be read of each segment, with its number; frames are bytes."""
    found = []
    for number in sorted(segments):
        data, at = memoryview(bytes(segments[number])), SEGMENT_HEADER
        while at < len(data):
            try:
                record, at = records.read(data, at)
            except Damaged:
                break
            found.append((number, record._replace(frames=tuple(bytes(frame) for frame in record.frames))))
    return found


def pack_segments(found: Iterable[tuple[int, Record]], numbers: Iterable[int]) -> dict[int, bytes]:
    """Segments of these numbers with these records."""
    made = {number: bytearray(records.segment_header(number)) for number in numbers}
    for number, record in found:
        made[number] += b"".join(records.pack(record))
    return {number: bytes(data) for number, data in made.items()}
