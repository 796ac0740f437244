"""Segments of a journal that are in memory: read as those of a directory are."""

from collections.abc import Callable
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
