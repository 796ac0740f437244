"""A journal of another protocol version is refused, and left as it is."""

from pathlib import Path

import pytest
from support.made_up_jobs import Jobs, part, results

from scaler.config import SchedulerConfig
from scaler.journal import records
from scaler.journal.directory import Directory, JournalError
from scaler.protocol.messages import PROTOCOL_VERSION
from scaler.scheduler.jobs_opener import open_jobs

OTHER = PROTOCOL_VERSION + 1


def written(path: Path, *, has_results: bool) -> None:
    """A journal as this program writes it."""
    jobs = Jobs()
    jobs.submit(*part())
    jobs.sync()
    if has_results:
        jobs.core_says(results(0, b"a", b"bb"))
        jobs.sync()
    path.mkdir()
    for number, data in jobs.paper.segments.items():
        Directory(path).segment(number).write_bytes(data)


def content(path: Path) -> dict[str, bytes]:
    """All that is there, but for what says who has it open."""
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file() and each.name != "lock"}


@pytest.mark.parametrize("has_results", [False, True])
def test_it_is_refused_and_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_results: bool) -> None:
    monkeypatch.setattr(records, "PROTOCOL_VERSION", OTHER)
    written(tmp_path / "journal", has_results=has_results)
    monkeypatch.undo()
    before = content(tmp_path / "journal")
    words = f"is of another version of Scaler: its messages are of protocol {OTHER}, this program speaks protocol "
    with pytest.raises(JournalError, match=f"{words}{PROTOCOL_VERSION}; use that one, or give another directory"):
        open_jobs(SchedulerConfig("tcp://127.0.0.1:0", journal=str(tmp_path / "journal")))
    assert before
    assert content(tmp_path / "journal") == before


def test_one_of_this_version_is_opened(tmp_path: Path) -> None:
    written(tmp_path / "journal", has_results=True)
    keeper = open_jobs(SchedulerConfig("tcp://127.0.0.1:0", journal=str(tmp_path / "journal")))
    assert keeper is not None
    keeper.close()
