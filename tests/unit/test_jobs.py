"""Durable jobs: what counts is on disk, and what was written becomes the same jobs again, wherever it was cut."""

import json
from dataclasses import replace
from random import Random

import pytest
from simulator.hostile_messages import Hostile
from simulator.segments import pack_segments, records_of
from support.counting import calls_of
from support.made_up_jobs import FIRST, MONITOR, Jobs, Paper, part, results

from scaler.client.jobs.job import Job
from scaler.errors import JobError
from scaler.journal import records
from scaler.journal.layout import ONLY_ANEW
from scaler.protocol.codec import encode
from scaler.protocol.codes import NO_ROOT
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    GRAPH,
    INLINE,
    INLINE_VALUES,
    KEEP,
    PLACE,
    STORED_OBJECT,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    Ack,
    AgentsInUse,
    ClientReturn,
    DisconnectRequest,
    Heartbeat,
    JobQuestion,
    JobSubmit,
    ObjectAnnounce,
    ObjectRequest,
    Spans,
    Task,
    TaskCancel,
    u8,
    u32,
    u64,
)
from scaler.results.reference import file_name
from scaler.scheduler.jobs import at_core, filing, job_table, keeper
from scaler.scheduler.jobs.accepting import ROW
from scaler.scheduler.jobs.at_core import UNWRITTEN_BYTES
from scaler.scheduler.jobs.events import RemoveFiles
from scaler.scheduler.jobs.job_records import Kind
from scaler.scheduler.jobs.jobs_core import GATHER, LOOK, SCARCE, UNCERTAIN
from scaler.scheduler.jobs.reading import MOST_WAITING
from scaler.scheduler.jobs.restoring import MISSING, WRONG
from scaler.scheduler.jobs.submitters import LEFT

_BOTH = ("work", "gone")


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


# ---- what counts is on disk ------------------------------------------------------------------------------------------
def test_a_part_is_acknowledged_when_it_is_on_disk_and_begins_before(jobs):
    jobs.submit(*part())
    assert jobs.answers == []
    assert [type(say.message) for say in jobs.said][:3] == [ObjectAnnounce, Task, ClientReturn]
    assert jobs.said[1].message.root == NO_ROOT  # what its tasks submit does not end with it
    jobs.sync()
    assert jobs.last().error == ""
    assert jobs.state() | {"state": "running", "rows": 3, "done": 0, "function": "f"} == jobs.state()


def test_a_result_is_shown_and_settled_when_it_is_on_disk(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(results(0, b"a", b"bb"))
    jobs.ask("ordered")
    assert (list(jobs.last().rows), jobs.state()["done"]) == ([], 0)
    assert jobs.said[-1].ack == 0
    jobs.sync()
    jobs.ask("ordered")
    answer = jobs.last()
    assert (list(answer.rows), list(answer.sizes), bytes(answer.bodies[0]), answer.next) == ([0, 2], [1, 2], b"abb", 2)
    assert type(jobs.said[-1].message) is Ack
    assert jobs.said[-1].ack == 1


def test_rows_are_shown_in_their_order_without_gaps_and_in_that_of_their_ends(jobs):
    jobs.submit(*part())
    jobs.core_says(results(2, b"c"))
    jobs.sync()
    jobs.ask("ordered")
    assert list(jobs.last().rows) == []
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    jobs.ask("finished")
    assert list(jobs.last().rows) == [2, 3, 0, 1]
    jobs.ask("ordered")
    assert list(jobs.last().rows) == [0, 1]
    jobs.core_says(results(1, b"b"))
    jobs.sync()
    jobs.ask("ordered", position=1)
    assert (list(jobs.last().rows), bytes(jobs.last().bodies[0])) == ([1, 2, 2, 3], b"bc")


def test_a_question_waits_for_the_next_row_and_no_longer_than_it_says(jobs):
    jobs.submit(*part())
    jobs.sync()
    before = len(jobs.answers)
    jobs.ask("ordered", wait=2.0)
    assert len(jobs.answers) == before
    jobs.go_on(1.0)
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    assert list(jobs.last().rows) == [0, 1]
    jobs.ask("ordered", position=1, wait=2.0)
    jobs.go_on(2.5)
    assert list(jobs.last().rows) == []
    for _ in range(MOST_WAITING):
        jobs.ask("state", wait=50.0)
    jobs.ask("state", wait=50.0)
    assert "too many questions" in jobs.last().error
    jobs.keeper.lose_monitor(MONITOR)
    jobs.ask("state", wait=50.0)
    assert jobs.answers[-1].number != jobs.number  # the others are forgotten, so this one may wait


def test_a_job_ends_when_its_last_row_is_on_disk(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(results(0, b"a", b"b", b"c"))
    assert jobs.state()["state"] == "running"
    jobs.sync()
    state = jobs.state()
    assert (state["state"], state["done"]) == ("done", 3)
    assert 1000.0 < state["ended"] < 1001.0
    assert jobs.tell_of(DisconnectRequest)
    assert Jobs(Paper(jobs.paper.segments)).joined == []  # it does not come back to the next scheduler


def test_an_error_a_cancelled_row_and_a_list_are_kept_too(jobs):
    jobs.submit(*part(5))
    record = ErrorRecord(ErrorKind.RAISED, "no", "f").encode()
    jobs.core_says(results(0, record, outcome=ERROR))
    message = results(1, b"", b"", outcome=CANCELLED)
    message.sizes, message.bodies = u32(), [b""]
    jobs.core_says(message)
    message = results(3, b"list", b"", outcome=VALUES_LIST)
    message.sizes, message.bodies = u32([4]), [b"list"]
    jobs.core_says(message)
    jobs.sync()
    state = jobs.state()
    assert (state["state"], state["done"], state["failed"], state["cancelled"]) == ("failed", 2, 1, 2)
    jobs.ask("ordered")
    answer = jobs.last()
    assert list(answer.outcomes) == [ERROR, CANCELLED, VALUES_LIST]
    assert bytes(answer.bodies[0]) == record + b"list"


def test_rows_of_a_list_that_is_none_end_with_an_error_where_others_of_it_had_ended(jobs):
    jobs.submit(*part())
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    message = results(0, b"garbage", outcome=VALUES_LIST)
    message.spans[1] = 3
    jobs.core_says(message)
    jobs.sync()
    jobs.ask("ordered")
    answer = jobs.last()
    assert list(answer.outcomes) == [VALUES_EACH, ERROR, ERROR]
    record = ErrorRecord.decode(bytes(answer.bodies[0])[-answer.sizes[-1] :])
    assert record.message == "a worker sent a list of results is no pickle of protocol 5"
    assert (jobs.state()["state"], jobs.state()["failed"]) == ("failed", 2)


def test_while_the_disk_refuses_nothing_is_accepted_and_rows_wait_in_the_end(jobs):
    jobs.submit(*part(4))
    jobs.sync()
    jobs.paper.trouble = "No space left on device"
    jobs.keeper.gather()
    jobs.submit(*part(), name="other")
    assert (
        jobs.last().error == "the journal can't be written: No space left on device; nothing is accepted until it can"
    )
    jobs.ask("delete", name="other", token=99)  # of who would take back what was refused: at once, too
    assert "can't be written" in jobs.last().error
    jobs.ask("delete", name="other")
    assert "there is no job 'other' here" in jobs.last().error
    large = bytes(UNWRITTEN_BYTES // 2)
    jobs.core_says(results(0, large))
    assert jobs.holds == []
    jobs.core_says(results(1, large))
    jobs.core_says(results(2, b"x"))
    assert jobs.holds[-1].bytes > UNWRITTEN_BYTES
    jobs.go_on(1.0)
    assert len(jobs.holds) > 1  # said again and again, so that the core does not give the job up
    jobs.paper.trouble = None
    jobs.sync()
    assert jobs.holds[-1].bytes == 0
    assert jobs.state()["done"] == 3


def test_a_job_that_its_submitter_takes_back_while_the_disk_refuses_does_not_run_and_leaves_its_name(jobs):
    jobs.paper.trouble = "No space left on device"
    jobs.submit(*part(4), is_last=False)  # before anybody knows
    jobs.keeper.gather()
    jobs.submit(*part(4), is_last=False)  # as the first one is not answered
    assert jobs.last().error.endswith("nothing is accepted until it can")
    jobs.ask("delete", token=7)
    assert "can't be written" in jobs.last().error
    assert isinstance(jobs.said[-1].message, DisconnectRequest)
    jobs.ask("list")
    assert not jobs.last().text
    jobs.paper.trouble = None
    jobs.sync()
    jobs.submit(*part(4), token=8, is_last=True)
    jobs.sync()
    assert (jobs.last().error, jobs.state()["state"]) == ("", "running")
    assert Jobs(Paper(jobs.paper.segments)).state()["rows"] == 4


def test_a_journal_that_only_another_start_helps_has_nobody_wait_and_no_job_of_which_it_has_nothing(jobs):
    jobs.submit(*part(1), name="there", is_last=False)
    jobs.sync()
    jobs.submit(*part(1), name="new", token=8, is_last=False)
    jobs.submit(*part(1, 20), name="new", token=8, key="1")
    jobs.submit(*part(1, 20), name="there", key="1", is_last=False)
    jobs.ask("cancel", name="there")
    jobs.ask("note", name="there")
    before = len(jobs.answers)
    jobs.paper.trouble = f"journal/lock was removed or replaced; {ONLY_ANEW}"
    jobs.keeper.gather()
    jobs.go_on()
    errors = [answer.error for answer in jobs.answers[before:]]
    assert len(errors) == 5
    assert all(error.startswith(f"the journal can't be written: {jobs.paper.trouble}") for error in errors)
    jobs.ask("list")
    assert [json.loads(line)["job"] for line in jobs.last().text.splitlines()] == ["there"]
    assert isinstance(jobs.said[-1].message, DisconnectRequest)
    jobs.paper.trouble = None  # somebody has moved its directory back
    jobs.sync()
    again = Jobs(Paper(jobs.paper.segments))
    assert again.state("there")["rows"] == 2
    again.ask("state", name="new")
    assert "there is no job 'new' here" in again.last().error


def test_a_job_that_waits_for_a_disk_that_may_go_on_is_not_given_up(jobs):
    jobs.submit(*part(1))
    jobs.paper.trouble = "Input/output error"
    jobs.keeper.gather()
    jobs.go_on()
    assert jobs.answers == []
    jobs.paper.trouble = None
    jobs.sync()
    assert jobs.last().error == ""


def test_results_wait_where_only_the_reserve_is_left_and_jobs_are_deleted_with_it(jobs):
    jobs.submit(*part())
    jobs.submit(*part(), name="other", token=8)
    jobs.sync()
    jobs.paper.room = 1000.0
    jobs.keeper.gather()
    jobs.core_says(results(0, bytes(2000)))
    jobs.core_says(results(0, b"fits"), FIRST + 1)
    jobs.sync()
    assert (jobs.state()["done"], jobs.state("other")["done"]) == (0, 1)
    why = "the journal can't be written: No space left on device"
    assert (jobs.state()["waits"], jobs.state("other")["waits"]) == (why, "")
    assert jobs.told() == ["Journal: it can't be written: No space left on device; durable jobs wait until it can"]
    jobs.submit(*part(), name="third")
    assert "No space left on device; nothing is accepted until it can" in jobs.last().error
    jobs.paper.room = 0.0
    jobs.ask("delete", "other")
    jobs.sync()
    assert jobs.last().error == ""
    looks = jobs.paper.looks
    assert jobs.now < jobs.keeper.wake <= jobs.now + LOOK
    jobs.go_on(LOOK)
    assert jobs.paper.looks == looks + 1
    jobs.paper.room = 3000.0
    jobs.sync()
    assert (jobs.state()["done"], jobs.state()["waits"]) == (1, "")
    assert jobs.told() == ["Journal: it is written again"]
    jobs.go_on(LOOK)
    assert jobs.paper.looks == looks + 1


def test_a_part_is_refused_for_which_there_is_no_room(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.paper.room = 1000.0
    jobs.keeper.gather()
    jobs.submit(*part(), name="large", note=bytes(2000))
    assert "No space left on device; nothing is accepted until it can" in jobs.last().error
    assert jobs.paper.looks == 1
    jobs.submit(*part(), name="large", note=bytes(2000))
    assert jobs.keeper.wake <= jobs.now + LOOK, "it is looked again, but not as often as somebody asks"
    assert jobs.paper.looks == 1
    jobs.submit(*part(), name="small", token=8)
    jobs.sync()
    assert jobs.state("small")["state"] == "running"
    jobs.paper.room = 3000.0
    jobs.go_on(LOOK)
    assert jobs.paper.looks == 2
    jobs.keeper.gather()
    jobs.submit(*part(), name="large", note=bytes(2000))
    jobs.sync()
    assert jobs.last().error == ""


def test_what_is_on_its_way_to_the_disk_takes_room(jobs):
    jobs.submit(*part())
    jobs.submit(*part(), name="other", token=8)
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.paper.sync()
    jobs.paper.room = 3000.0
    jobs.keeper.gather()
    jobs.core_says(results(1, bytes(2000)))
    jobs.core_says(results(0, bytes(2000)), FIRST + 1)
    assert jobs.paper.waiting == []
    jobs.go_on(GATHER)
    assert len(jobs.paper.waiting) == 1, "both are written into room for one"
    jobs.paper.sync()
    jobs.paper.room = 1000.0
    jobs.keeper.gather()
    jobs.sync()
    assert (jobs.state()["done"], jobs.state("other")["done"]) == (2, 0)


def test_a_disk_that_refuses_has_no_job_cancelled_or_deleted_either(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.paper.trouble = "Input/output error"
    jobs.keeper.gather()
    for kind in ("cancel", "delete"):
        jobs.ask(kind)
        assert jobs.last().error == "the journal can't be written: Input/output error"
    jobs.paper.trouble = None
    jobs.sync()
    assert jobs.state()["state"] == "running"


def test_jobs_of_an_age_are_deleted_though_there_is_no_more_than_the_reserve():
    jobs = Jobs(age=10.0)
    jobs.submit(*part(1))
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    assert jobs.state()["state"] == "done"
    jobs.paper.room = 0.0
    jobs.keeper.gather()
    jobs.go_on(11.0)
    jobs.sync()
    assert jobs.paper.segments == {}


def test_results_that_wait_for_the_disk_hide_nothing_that_is_due_meanwhile(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.core_says(results(1, b"b"))
    jobs.ask("ordered", wait=0.7)
    jobs.go_on(0.5)
    assert jobs.keeper.wake == pytest.approx(jobs.now + 0.2), "when the question is to be answered"
    jobs.go_on(0.3)
    assert jobs.last().next == 0
    assert jobs.keeper.wake > jobs.now


# ---- a submitter that leaves -----------------------------------------------------------------------------------------
def half_a_job(jobs, **fields) -> None:
    jobs.submit(*part(), is_last=False, **fields)
    jobs.sync()
    assert jobs.state()["state"] == "open"


def test_a_job_fails_whose_submitter_has_left_before_all_of_it_was_here():
    jobs = Jobs(patience=10.0, age=100.0)
    half_a_job(jobs)
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    jobs.go_on(50.0)
    assert jobs.state()["state"] == "open", "it is there"
    jobs.keeper.lose_monitor(MONITOR)
    jobs.go_on(1.0)
    jobs.ask("state", wait=50.0)
    jobs.go_on(9.0)
    assert jobs.answers[-1].number != jobs.number
    jobs.go_on(1.0)
    state = json.loads(jobs.last().text)
    assert (state["state"], state["done"], state["trouble"]) == ("failed", 1, LEFT)
    assert jobs.tell_of(DisconnectRequest)
    assert jobs.told() == [f"durable job 'work' can't go on: {LEFT}"]
    jobs.submit(*part(), token=8)
    assert jobs.last().error == (
        "there is a job 'work' already (failed): not all of it is here, and its submitter is gone; delete it, "
        "or take another name"
    )
    jobs.submit(*part(), token=8, joins=True, key="1")
    assert jobs.last().error == f"job 'work' takes no more rows: {LEFT}"
    jobs.sync()
    assert Jobs(Paper(jobs.paper.segments)).state()["trouble"] == LEFT
    jobs.go_on(101.0)
    jobs.ask("state")
    assert "there is no job 'work' here" in jobs.last().error


def test_a_submitter_that_comes_back_goes_on_however_late():
    jobs = Jobs(patience=10.0)
    half_a_job(jobs)
    for late in (5.0, 15.0):
        jobs.keeper.lose_monitor(MONITOR)
        jobs.go_on(1.0)
        jobs.go_on(late)
        assert jobs.state()["state"] == ("open" if late < 10.0 else "failed")
        jobs.submit(*part(first=int(late) * 10), key=str(late), is_last=False)
        jobs.sync()
        assert (jobs.last().error, jobs.state()["state"]) == ("", "open")
    assert len(jobs.joined) == 2
    jobs.keeper.lose_monitor(MONITOR)
    jobs.go_on(1.0)
    jobs.go_on(15.0)
    jobs.submit(key="", is_last=True)  # all was here, but for the word that it was all
    jobs.sync()
    assert (jobs.last().error, jobs.state()["state"], jobs.state()["trouble"]) == ("", "running", "")
    assert len(jobs.tell_of(Task)) == 1 + 1 + 3 + 3, "each as it comes, and all of them whenever it goes on"
    jobs.go_on(50.0)
    assert Jobs(Paper(jobs.paper.segments), patience=0.0).state()["state"] == "running"


def test_a_submitter_is_waited_for_after_a_restart_and_not_while_another_scheduler_may_hear_it():
    first = Jobs()
    half_a_job(first)
    jobs = Jobs(Paper(first.paper.segments), patience=10.0)
    jobs.submit(*part(), token=8)
    assert jobs.last().error == (
        "there is a job 'work' already (open): not all of it is here yet; delete it if nobody submits it any more, "
        "or take another name"
    )
    jobs.doubt("another one leads")
    jobs.go_on(20.0)
    jobs.doubt("")
    assert jobs.state()["state"] == "open"
    jobs.go_on(1.0)
    jobs.go_on(10.0)
    assert jobs.state()["state"] == "failed"


def test_a_job_that_anybody_may_add_to_stays_open():
    jobs = Jobs(patience=10.0)
    jobs.submit(*part(1), name="added to")  # by one, and then by any
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    jobs.submit(*part(1, 30), name="added to", token=8, joins=True, key="1", is_last=False)
    half_a_job(jobs, joins=True)
    jobs.keeper.lose_monitor(MONITOR)
    for each in (jobs, Jobs(Paper(jobs.paper.segments), patience=10.0)):
        for _ in range(3):
            each.go_on(10.0)
        assert each.state()["state"] == each.state("added to")["state"] == "open"


# ---- another scheduler -----------------------------------------------------------------------------------------------
def test_what_was_written_goes_on_at_the_next_scheduler_with_what_has_ended(jobs):
    jobs.submit(*part(), note=b"note")
    jobs.core_says(AgentsInUse(u32([3, 4])))
    jobs.core_says(AgentsInUse(removed=u32([4])))
    jobs.core_says(results(1, b"b"))
    jobs.sync()
    again = Jobs(Paper(jobs.paper.segments))
    (join,) = again.joined
    assert (join.hello.number, list(join.hello.agents)) == (FIRST, [3])
    assert join.hello.session == jobs.joined[0].hello.session
    (task,) = again.tell_of(Task)
    assert (list(task.ended), task.bodies) == ([1, 2], [b"xxx"])
    assert again.tell_of(ClientReturn)
    again.core_says(results(0, b"a"))
    again.core_says(results(1, b"B"))  # said again: the first counts
    again.core_says(results(2, b"c"))
    again.sync()
    again.ask("ordered")
    assert bytes(again.last().bodies[0]) == b"abc"
    again.ask("note")
    assert bytes(again.last().bodies[0]) == b"note"


def test_the_core_is_given_the_value_of_a_row_that_ended_before(jobs):
    jobs.submit(*part())
    jobs.core_says(results(0, b"a", b"b"))
    jobs.sync()
    again = Jobs(Paper(jobs.paper.segments))
    again.core_says(ObjectRequest(u32([FIRST, FIRST]), u64([11, 77])))
    again.sync()
    values = again.tell_of(ObjectAnnounce)[-2:]
    told = {announce.ids[0]: (announce.kinds[0], bytes(announce.bodies[0])) for announce in values}
    assert told[11] == (INLINE, b"b")
    assert "has no value 77" in ErrorRecord.decode(told[77][1]).message


@pytest.fixture(scope="module")
def sample() -> tuple[bytes, list[bytes]]:
    """A journal of three jobs, one of them deleted, and the values of the first."""
    jobs = Jobs()
    jobs.submit(*part(), is_last=False)
    jobs.submit(*part(2, 30), key="1")
    jobs.core_says(results(0, b"a", b"b"))
    jobs.submit(*part(1), name="gone", token=8)
    jobs.submit(*part(1), name="third", token=9)
    jobs.sync()
    jobs.ask("delete", "gone")
    jobs.core_says(results(0, b"d", b"e", batch=30))
    jobs.core_says(results(2, b"c"))
    jobs.sync()
    return bytes(jobs.paper.segments[1]), [b"a", b"b", b"c", b"d", b"e"]


def _values(jobs: Jobs) -> list[bytes]:
    """The values of the first job, as far as they are there."""
    jobs.ask("ordered")
    answer = jobs.last()
    if answer.error:
        return []
    body, at, values = bytes(answer.bodies[0]), 0, []
    for size in answer.sizes:
        values.append(body[at : at + size])
        at += size
    return values


#: one of so many cuts and bits is tried, but by `make sim`: each
SOME_CUTS, SOME_BITS = 7, 53


@pytest.mark.parametrize("step", [SOME_CUTS, pytest.param(1, marks=pytest.mark.heavy)])
def test_a_journal_that_is_cut_at_any_byte_gives_the_results_before_it(sample, step):
    data, values = sample
    most = 0
    for cut in [*range(0, len(data), step), len(data)]:
        found = _values(Jobs(Paper({1: data[:cut]})))
        assert found == values[: len(found)]
        assert len(found) >= most or len(found) == 0
        most = max(most, len(found))
    assert most == len(values)


@pytest.mark.parametrize("step", [SOME_BITS, pytest.param(1, marks=pytest.mark.heavy)])
def test_a_journal_with_any_bit_flipped_gives_no_wrong_result(sample, step):
    data, values = sample
    for bit in range(0, 8 * len(data), step):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = _values(Jobs(Paper({1: bytes(flipped)})))
        assert found == values[: len(found)]


def test_a_record_that_is_none_takes_no_result_along(sample):
    data, _ = sample
    for kind in range(1, 8):
        for frames in ((), (b"",), (b"[]",), (b"{}",), (b'{"turn":"x"}', b"{}")):
            bad = b"".join(records.pack(records.Record(kind, 1, frames, 1)))
            jobs = Jobs(Paper({1: data + bad}))
            assert _values(jobs) == [b"a", b"b", b"c", b"d", b"e"] or kind == 7  # which deletes it


def test_a_segment_that_was_copied_behind_many_results_is_put_before_them_once(monkeypatch):
    """With the parts of a job behind what it has made, each part had all results looked at again."""
    parts, rows = 12, 5
    jobs = Jobs()
    for number in range(parts):
        jobs.submit(*part(rows, 10 + 100 * number), key=str(number), is_last=number == parts - 1)
    jobs.sync()
    jobs.keeper._core._table.layout.turn_over()
    for number in reversed(range(parts)):
        for row in range(rows):
            jobs.core_says(results(row, b"%d" % row, batch=10 + 100 * number))
            jobs.sync()
    there = {number: bytes(data) for number, data in jobs.paper.segments.items()}
    assert sorted(there) == [1, 2]
    there[3] = bytes(records.segment_header(3)) + there.pop(1)[records.SEGMENT_HEADER :]
    restore, looks = at_core.restore_results, []
    monkeypatch.setattr(at_core, "restore_results", lambda *about: looks.append(1) or restore(*about))
    again = Jobs(Paper(there))
    again.ask("ordered")
    assert bytes(again.last().bodies[0]) == b"01234" * parts
    assert (again.state()["state"], again.told()) == ("done", [])  # all that came too early has found its place
    assert len(looks) <= 2 * parts * rows


def test_rows_of_a_graph_are_found_among_those_that_are_wanted(jobs):
    """Of a batch of 4,000 wanted rows each result had all of them looked through: 0.6 s."""

    class Unlisted(list):
        def __iter__(self):
            raise AssertionError("all rows that are wanted are looked through")

    function, task = part(6)
    task.form, task.sizes, task.bodies, task.flags = GRAPH, u32(), [], KEEP | INLINE_VALUES
    task.dependency_counts, task.uses, task.wanted = u32([0] * 6), u32([0] * 6), u8([1, 0, 1, 1, 0, 0])
    jobs.submit(function, task)
    (job,) = jobs.keeper._core._table.jobs.values()
    job.batches[10].wanted = Unlisted(job.batches[10].wanted)
    jobs.core_says(results(1, b"b", b"c"))
    jobs.core_says(results(5, b"f"))
    jobs.core_says(results(3, b"d"))
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    jobs.ask("ordered")
    assert bytes(jobs.last().bodies[0]) == b"acd"
    assert jobs.state()["state"] == "done"


def test_a_segment_that_can_not_be_removed_is_tried_again(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.told()
    jobs.paper.is_stuck = True
    jobs.ask("delete")
    jobs.sync()
    assert jobs.last().error == ""
    told = ["Journal: segment 1, which nobody needs, can't be removed: Read-only file system; it is tried again"]
    assert jobs.told() == told
    jobs.go_on(keeper.AGAIN)
    assert (jobs.paper.removed, jobs.told()) == ([], [])
    jobs.paper.is_stuck = False
    jobs.go_on(keeper.AGAIN)
    assert (jobs.paper.removed, jobs.keeper.wake) == ([1], None)


def calls_to_take_a_result(others: int) -> int:
    """Calls of functions for a result and what follows until it is on disk, while so many other jobs are open."""
    jobs = Jobs()
    for number in range(others + 1):
        jobs.submit(*part(), name=f"job-{number}", token=number + 1)
    jobs.sync()

    def end() -> None:
        jobs.core_says(results(0, b"a"))
        jobs.sync()

    calls = calls_of(end)
    assert jobs.state("job-0")["done"] == 1
    return calls


def test_a_result_costs_the_same_however_many_jobs_are_open():
    """1.6 ms with 8,000, which were looked through several times in each step."""
    calls_to_take_a_result(1)  # what is only done the first time, as to look how messages are laid out
    assert calls_to_take_a_result(300) == calls_to_take_a_result(10)


# ---- segments that are missing ---------------------------------------------------------------------------------------
def job_of_parts(count):
    """A job whose parts of one row each are on a segment of paper each, with how they ended; and one more job."""
    jobs = Jobs(Paper(most=900))
    for number in range(count):
        jobs.submit(*part(1, 10 * (number + 1)), key=str(number), is_last=number == count - 1)
        jobs.core_says(results(0, b"%d" % number, batch=10 * (number + 1)))
        jobs.sync()
    jobs.submit(*part(1), name="other", token=9)
    jobs.core_says(results(0, b"x"), FIRST + 1)
    jobs.sync()
    return jobs


def without(jobs, kind, turn):
    """The segments but for the one that has this record of the first job, counted among those of its kind."""
    found = []

    def take(record, place):
        if record.kind == kind and record.owner == 1:
            found.append(place.segment)

    Paper(jobs.paper.segments).replay(take)
    return {number: data for number, data in jobs.paper.segments.items() if number != found[turn]}


def test_a_job_of_which_parts_are_missing_says_so_and_what_is_left_of_it_stays():
    jobs = job_of_parts(4)
    there = without(jobs, Kind.PART, 1)
    again = Jobs(Paper(there, most=900))
    (line,) = again.told()
    assert "segments are missing that they need. They stay, in segments " in line
    state = again.state()
    assert (state["state"], state["trouble"]) == ("failed", MISSING)
    assert not again.joined
    again.ask("delete", "other")
    again.sync()
    assert again.state()["state"] == "failed"
    kept = dict(again.paper.segments)
    whole = Jobs(Paper({**jobs.paper.segments, **kept}, most=900))
    assert whole.told() == []
    assert whole.state()["state"] == "done"
    whole.ask("ordered")
    assert bytes(whole.last().bodies[0]) == b"0123"


@pytest.mark.parametrize(
    "wrong",
    [
        records.Record(Kind.RESULTS, 1, (b"none",), 1),
        records.Record(Kind.PART, 1, (b'{"key":"x"}',), 1),
        records.Record(Kind.STATE, 1, (b"", b""), 1),
        records.Record(Kind.STATE, 1, (b'{"turn":9}',), keeper.MOST_TERM),
    ],
)
def test_a_record_that_is_not_what_it_should_be_costs_its_job_and_no_other_one(wrong):
    jobs = job_of_parts(2)
    found = records_of(jobs.paper.segments)
    at = next(at for at, (_, record) in enumerate(found) if record.kind == Kind.OPENED and record.owner == 2)
    found.insert(at, (found[at][0], wrong))
    again = Jobs(Paper(pack_segments(found, jobs.paper.segments), most=900))
    (line,) = again.told()
    assert "1 records of 1 jobs can't be used: 1 of them are not what they should be. They stay, in segments " in line
    state = again.state()
    assert (state["state"], state["trouble"]) == ("failed", WRONG)
    assert again.keeper.damage is None
    again.ask("ordered", "other")
    assert bytes(again.last().bodies[0]) == b"x"
    again.ask("delete")
    again.sync()
    last = Jobs(Paper(again.paper.segments, most=900))
    assert last.told() == []
    last.ask("ordered", "other")
    assert bytes(last.last().bodies[0]) == b"x"


def test_files_of_a_job_stay_of_which_the_journal_can_not_be_used():
    jobs = job_of_parts(1)
    found = records_of(jobs.paper.segments)
    found = [(at, record._replace(frames=(b"",)) if record.kind == Kind.OPENED else record) for at, record in found]
    table = Jobs(Paper(pack_segments(found, jobs.paper.segments), most=900)).keeper._core._table
    filing.sweep(table, table.identity, [file_name(number, 0, 5) for number in (1, 2, 3)])
    assert table.effects[-1] == RemoveFiles(table.identity, [file_name(3, 0, 5)])


def test_rows_whose_results_are_missing_run_again():
    jobs = Jobs(Paper(most=500))
    jobs.submit(*part(3))
    for row, value in enumerate((b"a", b"b", b"c")):
        jobs.core_says(results(row, value))
        jobs.sync()
    assert jobs.state()["state"] == "done"
    again = Jobs(Paper(without(jobs, Kind.RESULTS, 1), most=500))
    assert again.state()["state"] == "running"
    (task,) = again.tell_of(Task)
    for lo, hi in zip(task.ended[::2], task.ended[1::2], strict=True):
        assert (lo, hi) != (0, 3)
    for row, value in enumerate((b"a", b"b", b"c")):
        again.core_says(results(row, value))
    again.sync()
    assert again.state()["state"] == "done"
    again.ask("ordered")
    assert bytes(again.last().bodies[0]) == b"abc"


# ---- a disk that can't be read ---------------------------------------------------------------------------------------
def test_what_can_not_be_read_is_said_to_whoever_wants_it(jobs):
    jobs.submit(*part(), note=b"note")
    jobs.core_says(results(0, b"a", b"b"))
    jobs.sync()
    jobs.paper.unreadable = "Input/output error"
    for kind in ("ordered", "finished", "note"):
        jobs.ask(kind)
        assert jobs.last().error == "Input/output error"
    jobs.core_says(ObjectRequest(u32([FIRST]), u64([11])))
    announce = jobs.tell_of(ObjectAnnounce)[-1]
    assert "Input/output error" in ErrorRecord.decode(announce.bodies[0]).message
    jobs.paper.unreadable = ""
    jobs.ask("ordered")
    assert bytes(jobs.last().bodies[0]) == b"ab"


def test_a_job_that_can_not_be_read_waits_until_it_can(jobs):
    jobs.submit(*part())
    jobs.submit(*part(), name="gone", token=8)
    jobs.sync()
    paper = Paper(jobs.paper.segments)
    paper.unreadable = "Input/output error"
    again = Jobs(paper)
    assert again.told() == [f"Journal: job {name!r} waits until it can be read: Input/output error" for name in _BOTH]
    assert not again.tell_of(Task)
    again.go_on(keeper.AGAIN)
    assert again.told() == []
    again.ask("delete", "gone")
    paper.unreadable = ""
    again.go_on(keeper.AGAIN)
    assert (len(again.tell_of(Task)), again.keeper.wake) == (1, again.now + 1.0)
    again.core_says(results(0, b"a", b"b", b"c"))
    again.sync()
    assert again.state()["state"] == "done"


def ended_jobs(count):
    """Jobs of one row each, which have ended and are on small segments of paper."""
    jobs = Jobs(Paper(most=1900))
    for number in range(count):
        jobs.submit(*part(1), name=f"job-{number}", token=number + 1)
        jobs.core_says(results(0, b"%d" % number), FIRST + number)
        jobs.sync()
    return jobs


def listed(jobs):
    """The names of the jobs that there are."""
    jobs.ask("list")
    return [json.loads(line)["job"] for line in jobs.last().text.splitlines()]


def what_is_kept(jobs):
    """Of the jobs that the next scheduler finds, what has ended: the results."""
    again = Jobs(Paper(jobs.paper.segments, most=1900))
    names = listed(again)
    for name in names:
        again.ask("ordered", name)
    return dict(zip(names, [bytes(answer.bodies[0]) for answer in again.answers[1:]], strict=True))


def is_unreadable(jobs):
    jobs.paper.unreadable = "Input/output error"


def is_damaged(jobs):
    """The last byte of a job that stays."""
    jobs.paper.segments[1][-1] ^= 1


@pytest.mark.parametrize(
    ("trouble", "words"), [(is_unreadable, "Input/output error"), (is_damaged, "the checksum of a record is wrong")]
)
def test_a_segment_of_which_something_can_not_be_read_stays_and_all_goes_on(trouble, words):
    jobs = ended_jobs(3)
    was_on_paper = bytes(jobs.paper.segments[1])
    jobs.told()
    trouble(jobs)
    jobs.ask("delete", "job-0")
    jobs.sync()
    jobs.submit(*part(1), name="later", token=9)
    jobs.core_says(results(0, b"x"), FIRST + 3)
    jobs.sync()
    assert jobs.told() == [f"Journal: segment 1 stays until all of it can be read: {words}"]
    assert jobs.state("later")["state"] == "done"
    jobs.go_on(keeper.AGAIN)
    jobs.sync()
    assert jobs.told() == []
    assert 1 not in jobs.paper.removed
    jobs.paper.unreadable, jobs.paper.segments[1][: len(was_on_paper)] = "", was_on_paper
    assert what_is_kept(jobs) == {"job-1": b"1", "job-2": b"2", "later": b"x"}
    jobs.go_on(keeper.AGAIN)
    jobs.sync()
    assert 1 in jobs.paper.removed
    assert what_is_kept(jobs) == {"job-1": b"1", "job-2": b"2", "later": b"x"}


def test_a_segment_that_can_not_be_read_goes_as_soon_as_nothing_of_it_is_needed():
    jobs = ended_jobs(3)
    is_unreadable(jobs)
    jobs.ask("delete", "job-0")
    jobs.sync()
    assert 1 not in jobs.paper.removed
    jobs.ask("delete", "job-1")
    jobs.sync()
    assert 1 in jobs.paper.removed
    assert 1 not in {place.segment for place in jobs.keeper._uncopied}


def test_a_job_that_could_not_be_read_is_read_from_where_it_is_copied_to_meanwhile():
    jobs = Jobs(Paper(most=1900))
    for token, name in enumerate(("stays", "b", "c", "d"), 1):
        jobs.submit(*part(), name=name, token=token)
    jobs.sync()
    paper = Paper(jobs.paper.segments, most=1900)
    paper.unreadable = "Input/output error"
    again = Jobs(paper)
    paper.unreadable = ""
    for name in ("b", "c", "d"):
        again.ask("delete", name)
        again.sync()
    again.sync()
    assert paper.removed
    again.go_on(keeper.AGAIN)
    assert len(again.tell_of(Task)) == 1


def test_a_value_is_read_from_where_it_is_copied_to_while_it_is_asked_for():
    """Where room is scarce, what is waste is given back before anything else is done."""
    jobs = Jobs(Paper(most=6000))
    for token, (name, size) in enumerate([("stays", 1), ("waste", 3000), ("later", 3000)], 1):
        jobs.submit(*part(2), name=name, token=token)
        jobs.core_says(results(0, bytes(size)), FIRST - 1 + token)
        jobs.sync()
    jobs.paper.room = SCARCE / 2
    jobs.keeper.gather()
    jobs.ask("delete", "waste")
    while not jobs.paper.removed:
        jobs.core_says(ObjectRequest(u32([FIRST]), u64([10])))
        jobs.go_on(GATHER)
        jobs.paper.sync(1)
        jobs.keeper.gather()
        jobs.go_on()
    told = [each for each in jobs.tell_of(ObjectAnnounce) if each.ids[0] == 10]
    assert {(each.kinds[0], bytes(each.bodies[0])) for each in told} == {(INLINE, b"\0")}


# ---- giving back -----------------------------------------------------------------------------------------------------
def test_what_a_deleted_job_took_is_given_back(jobs):
    for number in range(4):
        jobs.submit(*part(), name=f"job-{number}", token=number + 1)
    jobs.sync()
    for number in range(4):
        jobs.ask("delete", f"job-{number}")
        jobs.sync()
    assert jobs.paper.segments == {}
    jobs.ask("list")
    assert jobs.last().text == ""


def test_segments_are_given_back_though_others_live_in_them_wherever_that_is_cut_short():
    jobs = ended_jobs(6)
    seen = 0
    for number in (0, 1, 2, 4, 5):
        jobs.ask("delete", f"job-{number}")
        while jobs.paper.waiting:
            jobs.sync(1)  # at each moment the scheduler may die, and what has not been synced is lost
            again = Jobs(Paper(jobs.paper.segments, most=1900))
            again.ask("ordered", "job-3")
            assert bytes(again.last().bodies[0]) == b"3"
            again.sync()
            again.ask("delete", "job-3")
            seen += 1
    assert seen > 8
    jobs.sync()
    jobs.ask("ordered", "job-3")
    assert bytes(jobs.last().bodies[0]) == b"3"
    assert sum(map(len, jobs.paper.segments.values())) < 2500
    jobs.ask("delete", "job-3")
    jobs.sync()
    assert jobs.paper.segments == {}


def test_that_a_job_was_deleted_outlives_the_segment_that_says_so():
    """As long as another one, in which others live, still has records of that job."""
    jobs = Jobs(Paper(most=6000))
    for number, (name, size) in enumerate([("gone", 100), ("stays", 2500), ("waste", 3000), ("later", 3000)]):
        jobs.submit(*part(1), name=name, token=number + 1)
        jobs.core_says(results(0, bytes(size)), FIRST + number)
        jobs.sync()
        if name == "waste":
            jobs.ask("delete", "gone")
            jobs.sync()
    assert (set(jobs.paper.segments), jobs.paper.removed) == ({1, 2, 3}, [])
    jobs.ask("delete", "waste")
    jobs.sync()
    assert jobs.paper.removed == [2]
    again = Jobs(Paper(jobs.paper.segments, most=6000))
    again.ask("list")
    assert [json.loads(line)["job"] for line in again.last().text.split("\n")] == ["stays", "later"]


@pytest.mark.parametrize("seed", range(50))
def test_a_job_that_is_deleted_does_not_come_back_whenever_that_is(seed):
    """Also as long as a segment has a copy of it that was on its way then, or how it was before."""
    rng = Random(seed)
    jobs = Jobs(Paper(most=2500))
    there: set[str] = set()
    for number in range(60):
        if there and rng.random() < 0.5:
            name = rng.choice(sorted(there))
            there.remove(name)
            jobs.ask("delete", name)
        else:
            jobs.submit(*part(1), name=f"job-{number}", token=number + 1)
            there.add(f"job-{number}")
            jobs.sync(rng.randrange(4))
        jobs.sync(rng.randrange(5))
        if rng.random() < 0.3:
            jobs.sync()
        if not jobs.paper.waiting:
            assert set(listed(Jobs(Paper(jobs.paper.segments, most=2500)))) == there


def test_what_lives_in_a_segment_is_copied_only_if_there_is_room_for_it():
    jobs = Jobs(Paper(most=4 << 20))
    for number, size in enumerate([1 << 20, 2 << 20, 100]):
        jobs.submit(*part(1), name=f"job-{number}", token=number + 1)
        jobs.core_says(results(0, bytes(size)), FIRST + number)
        jobs.sync()
    jobs.paper.room = 1.5 * (1 << 20)
    jobs.ask("delete", "job-1")
    jobs.sync()
    assert sum(map(len, jobs.paper.segments.values())) > 3 << 20
    jobs.paper.room = 2.5 * (1 << 20)
    jobs.sync()
    assert 1 << 20 < sum(map(len, jobs.paper.segments.values())) < 1.1 * (1 << 20)


def test_a_job_that_was_deleted_does_not_come_back(jobs):
    jobs.submit(*part())
    jobs.submit(*part(), name="stays", token=8)
    jobs.sync()
    jobs.ask("delete")
    jobs.sync()
    again = Jobs(Paper(jobs.paper.segments))
    again.ask("list")
    assert [json.loads(line)["job"] for line in again.last().text.split("\n")] == ["stays"]


def test_a_job_that_is_deleted_again_is_deleted_whoever_did_it_the_first_time(jobs):
    """The answer was lost with the scheduler that did it, and the next one knows nothing of such a job."""
    jobs.submit(*part(), name="other", token=8)
    jobs.sync()
    for name, token in (("work", 7), ("other", 7)):  # the second: another one has its name since
        jobs.ask("delete", name, token=token)
        jobs.sync()
        assert (jobs.last().error, jobs.last().token) == ("", 7)
    assert jobs.keeper.jobs == 1
    jobs.ask("delete")  # whoever gives a name alone is told that there is none
    assert "there is no job" in jobs.last().error


def test_a_part_that_comes_late_does_not_bring_back_a_job_that_was_deleted(jobs):
    """It was said over a connection that was given up, and again over another one: the job was made, and is read."""
    jobs.submit(*part(), is_last=False)
    jobs.submit(*part(3, 20), key="1", token=9, joins=True)
    jobs.sync()
    jobs.ask("delete")
    jobs.sync()
    for token, fields in ((7, {}), (9, {"joins": True})):
        jobs.submit(*part(), token=token, **fields)
        assert "was deleted: submit it anew" in jobs.last().error
    assert jobs.keeper.jobs == 0
    jobs.submit(*part(), token=8)
    jobs.sync()
    jobs.submit(*part(3, 20), key="1", token=9, joins=True)
    assert "was deleted" in jobs.last().error
    assert jobs.state()["rows"] == 3


def test_that_no_more_comes_of_a_job_that_was_deleted_is_no_news(jobs):
    jobs.submit(*part(), is_last=False)
    jobs.sync()
    jobs.ask("delete")
    jobs.sync()
    jobs.submit(key="")
    assert jobs.last().error == ""
    assert jobs.keeper.jobs == 0


def test_few_submissions_of_deleted_jobs_are_remembered(jobs, monkeypatch):
    monkeypatch.setattr(job_table, "MOST_DELETED", 2)
    for token in (7, 8, 9):
        jobs.submit(*part(), token=token)
        jobs.sync()
        jobs.ask("delete")
        jobs.sync()
    jobs.submit(*part(), token=8)
    assert "was deleted" in jobs.last().error
    jobs.submit(*part(), token=7)
    jobs.sync()
    assert jobs.last().error == ""


def test_old_jobs_are_deleted_and_a_quota_holds():
    jobs = Jobs(quota=1, age=10.0)
    jobs.submit(*part())
    jobs.submit(*part(), name="more", token=8)
    assert "more than the 1 bytes that they may (journal_quota)" in jobs.last().error
    jobs.core_says(results(0, b"a", b"b", b"c"))
    jobs.sync()
    assert jobs.state()["state"] == "done"
    jobs.go_on(9.0)
    assert jobs.state()["state"] == "done"
    jobs.go_on(2.0)
    jobs.sync()
    jobs.ask("state")
    assert "there is no job 'work' here" in jobs.last().error


def test_jobs_have_no_more_rows_than_there_is_memory_for():
    """A part of 300 bytes may have 131,072 rows, and 200 of them took 109 MB: nobody's account had them."""
    jobs = Jobs(memory=7 * ROW)
    jobs.submit(*part())
    jobs.sync()
    assert jobs.last().error == ""
    jobs.submit(*part(), name="second", token=8)
    jobs.sync()
    assert jobs.last().error == ""
    jobs.submit(*part(), name="third", token=9)
    assert "durable jobs would have 9 rows, for which 70 bytes of memory are too few" in jobs.last().error
    jobs.submit(*part())  # said again, it takes nothing
    jobs.sync()
    assert jobs.last().error == ""


# ---- what is refused -------------------------------------------------------------------------------------------------
def without_arguments(rows: int) -> Task:
    return Task(0, 80, rows, TOGETHER, INLINE_VALUES, 1, 2, "f", spans=u32([0, rows]))


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ([ObjectAnnounce(u64([1]), u8([STORED_OBJECT]), [PLACE.pack(1, 0)])], "an object that is not in it"),
        ([Heartbeat(1.0)], "a Heartbeat is no part of a job"),
        ([replace(part(3)[1], batch=2**64 - 9)], "ids that are none"),
        ([replace(part(3)[1], ended=u32([0, 1]))], "what only schedulers and agents say"),
        ([without_arguments(1 << 24)], "without their arguments"),
        ([replace(part(3)[1], flags=0)], "may be left in stores"),
        ([TaskCancel(Spans())], "a TaskCancel is no part of a job"),
        ([*part(3, 40), *part(3, 41)], "rows that are there already"),
    ],
)
@pytest.mark.parametrize("name", ["work", "new"])
def test_a_part_that_makes_no_sense_is_refused(jobs, inner, why, name):
    jobs.submit(*part(), is_last=False)
    jobs.sync()
    said = len(jobs.said)
    jobs.submit(*inner, key="1", name=name)
    assert why in jobs.last().error
    assert (len(jobs.said), jobs.keeper.jobs) == (said, 1)


def test_a_part_with_rows_of_another_one_is_refused(jobs):
    jobs.submit(*part(), is_last=False)
    jobs.submit(*part(3, 12), key="1")
    assert "rows that are there already" in jobs.last().error


def test_a_part_that_is_no_message_is_refused(jobs):
    jobs.keeper.ask(MONITOR, JobSubmit(5, "work", "me", 7, "0", counts=u32([1]), bodies=[b"", b"nonsense"]))
    jobs.go_on()
    assert "a part of a job that is none" in jobs.answers[-1].error


def test_a_name_belongs_to_who_took_it_first(jobs):
    jobs.submit(*part(), is_last=False)
    jobs.submit(*part(), is_last=False)  # said again: a scheduler died before it could answer
    jobs.submit(*part(2, 50), token=8)
    assert "there is a job 'work' already (open)" in jobs.last().error
    jobs.submit(*part(2, 50), key="other", token=8, joins=True)
    jobs.sync()
    assert jobs.last().next == 3
    jobs.submit(*part(2, 90), key="late")
    assert "takes no more rows" in jobs.last().error


def test_a_job_that_the_core_can_not_run_says_so(jobs):
    jobs.submit(*part())
    jobs.keeper.forget(FIRST, "sent what can't be")
    jobs.go_on()
    jobs.sync()
    state = jobs.state()
    assert (state["state"], state["trouble"]) == ("failed", "the scheduler could not run it: sent what can't be")


class Asking:
    """What a client's `Job` asks through, and decodes by: all is bytes."""

    def __init__(self, jobs):
        self.name = "work"
        self._jobs = jobs

    def ask(self, kind, **fields):
        self._jobs.ask(kind, limit=1 << 20, **{name: value for name, value in fields.items() if name != "wait"})
        return self._jobs.last()

    def load(self, payload):
        return bytes(payload)


@pytest.mark.parametrize("read", [Job.results, Job.as_ended])
def test_who_reads_the_results_of_a_job_that_can_not_go_on_is_told_so_behind_those_that_are_there(jobs, read):
    jobs.submit(*part())
    jobs.core_says(results(0, b"a", b"b"))
    jobs.sync()
    jobs.keeper.forget(FIRST, "it makes no sense")
    jobs.sync()
    asking = Asking(jobs)
    rows = read(Job(asking, asking))
    assert len([next(rows), next(rows)]) == 2
    with pytest.raises(JobError, match="job 'work' can't go on: the scheduler could not run it: it makes no sense"):
        next(rows)


def test_a_job_is_cancelled_and_stays_so(jobs):
    jobs.submit(*part())
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    jobs.ask("cancel", force=True)
    (cancel,) = jobs.tell_of(TaskCancel)
    assert (cancel.force, list(cancel.spans)) == (True, [(0, 10, 1, 3)])
    jobs.sync()
    again = Jobs(Paper(jobs.paper.segments))
    assert again.tell_of(TaskCancel)[0].force
    message = results(1, b"", b"", outcome=CANCELLED)
    message.sizes, message.bodies = u32(), [b""]
    again.core_says(message)
    again.sync()
    assert (again.state()["state"], again.state()["done"], again.state()["cancelled"]) == ("cancelled", 1, 2)
    again.submit(*part(1, 70), key="more", joins=True)
    assert "takes no more rows" in again.last().error


def test_a_job_without_rows_ends_when_it_is_on_disk_and_not_before(jobs):
    """It was over before it was a client of the core, and stayed one for ever."""
    jobs.submit(part()[0], joins=True)
    assert jobs.state()["state"] == "running"
    jobs.sync()
    assert jobs.state()["state"] == "done"
    assert [said.number for said in jobs.said if type(said.message) is DisconnectRequest] == [FIRST]


def test_more_of_a_job_that_has_ended_is_said_to_the_core_without_reading_what_is_not_on_disk(jobs):
    jobs.submit(*part(1), joins=True)
    jobs.sync()
    jobs.core_says(results(0, b"a"))
    jobs.sync()
    assert jobs.state()["state"] == "done"
    jobs.said.clear()
    jobs.submit(*part(2, 50), key="1", token=8, joins=True)  # its part is on its way to the disk
    again = jobs.joined[-1]
    assert (again.resident, len(jobs.joined)) == (jobs.joined[0].resident, 2)
    assert [task.batch for task in jobs.tell_of(Task)] == [50]
    assert len(jobs.tell_of(ClientReturn)) == 1
    jobs.core_says(results(0, b"b", b"c", batch=50), FIRST + 1)
    jobs.sync()
    state = jobs.state()
    assert (state["state"], state["rows"], state["done"]) == ("done", 3, 3)


def test_questions_about_what_is_not_there_say_what_to_do(jobs):
    for kind in ("state", "ordered", "finished", "note", "cancel", "delete"):
        jobs.ask(kind, "nothing")
        assert jobs.last().error == "there is no job 'nothing' here: 'scaler jobs' lists those that are"


def test_while_another_scheduler_may_lead_no_job_is_said_not_to_be_there(jobs):
    """One that was stopped, and goes on: jobs may have been made at the other one meanwhile."""
    jobs.submit(*part())
    jobs.sync()
    for kind in ("state", "ordered", "finished", "note", "file", "cancel", "delete"):
        for name, token in (("nothing", 0), ("work", 8)):  # the second: it was deleted there, and made anew
            jobs.doubt("nobody is heard")
            jobs.ask(kind, name, token=token)
            asked = jobs.number
            assert jobs.answers[-1].number != asked
            jobs.go_on(UNCERTAIN - 0.1)
            assert jobs.answers[-1].number != asked
            jobs.go_on(0.2)
            words = f"whether there is a job {name!r} can't be said for now: this scheduler may not lead any more"
            assert (jobs.answers[-1].number, jobs.answers[-1].error) == (asked, f"{words}: nobody is heard")
    jobs.ask("list")
    assert jobs.answers[-1].number != jobs.number
    jobs.go_on(UNCERTAIN + 0.1)
    assert (jobs.last().error, '"work"' in jobs.last().text) == ("", True)


def test_of_a_job_that_is_here_as_much_as_is_known_is_said_once_another_scheduler_may_have_led_for_a_while(jobs):
    """It may have more rows there. One that leads no more hears of that soon; otherwise what is here can be read."""
    jobs.submit(*part())
    jobs.sync()
    for kind in ("state", "ordered", "finished", "note"):
        jobs.doubt("nobody is heard")
        jobs.ask(kind)
        asked = jobs.number
        jobs.go_on(UNCERTAIN / 2)
        jobs.doubt("it was stopped for a while")  # the same, for another reason
        jobs.go_on(UNCERTAIN / 2 - 0.1)
        assert jobs.answers[-1].number != asked
        jobs.go_on(0.2)
        jobs.sync()
        assert (jobs.answers[-1].number, jobs.last().error) == (asked, "")
        jobs.ask(kind)
        jobs.sync()
        assert (jobs.answers[-1].number, jobs.last().error) == (asked + 1, ""), "it has lasted for long enough"
        jobs.doubt("")


def test_what_was_asked_in_doubt_is_answered_when_that_is_over(jobs):
    jobs.doubt("nobody is heard")
    jobs.ask("state", "nothing")
    jobs.ask("list")
    assert jobs.answers == []
    jobs.doubt("")
    assert [(answer.number, answer.error[:15]) for answer in jobs.answers] == [(1, "there is no job"), (2, "")]
    jobs.doubt("nobody is heard")
    for _ in range(MOST_WAITING + 1):
        jobs.ask("state", "nothing")
    assert "too many questions" in jobs.last().error
    jobs.keeper.lose_monitor(MONITOR)
    jobs.go_on(UNCERTAIN + 1)
    assert len(jobs.answers) == 3


def test_while_another_scheduler_may_lead_no_job_is_said_to_be_in_the_way(jobs):
    """It may have been deleted there."""
    jobs.submit(*part())
    jobs.sync()
    jobs.doubt("nobody is heard")
    jobs.submit(*part(1, 50), token=8)
    jobs.submit(*part(1, 51), token=8, key="1")
    jobs.submit(*part(1, 70), token=9, name="other")  # nothing is in its way here
    jobs.sync()
    assert [(answer.error, answer.token) for answer in jobs.answers] == [("", 7), ("", 9)]
    jobs.go_on(UNCERTAIN + 0.1)
    words = "whether there is a job 'work' can't be said for now: this scheduler may not lead any more: nobody is heard"
    assert [answer.error for answer in jobs.answers[2:]] == [words, words]


def test_parts_that_waited_for_the_end_of_a_doubt_are_taken_in_their_order(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.doubt("nobody is heard")
    jobs.go_on(UNCERTAIN - 1)
    jobs.submit(*part(1, 50), token=8, is_last=False)
    jobs.go_on(2.0)
    jobs.ask("delete", token=7)
    jobs.submit(*part(1, 51), token=8, key="1")  # nothing is in its way any more but the part before
    jobs.sync()
    assert [answer.token for answer in jobs.answers] == [7, 7]
    jobs.doubt("")
    jobs.sync()
    assert [(answer.error, answer.token, answer.next) for answer in jobs.answers[2:]] == [("", 8, 0), ("", 8, 1)]


def test_a_part_of_a_deleted_job_is_not_taken_before_it_is_on_disk_that_the_job_is_deleted(jobs):
    jobs.submit(*part(), is_last=False)
    jobs.sync()
    jobs.ask("delete", token=7)
    jobs.submit(key="", token=7)  # completes it: said again, as its connection was lost
    assert len(jobs.answers) == 1
    jobs.sync()
    assert [(answer.error, answer.token) for answer in jobs.answers] == [("", 7)] * 3


def test_a_job_is_not_taken_for_an_older_one_of_its_name(jobs):
    jobs.submit(*part())
    jobs.sync()
    jobs.ask("delete", token=7)
    jobs.sync()
    jobs.submit(*part(2, 50), token=8)
    jobs.sync()
    for kind in ("state", "ordered", "finished", "note", "file", "cancel"):
        jobs.ask(kind, token=7)
        assert jobs.last().error == "job 'work' was deleted, and another one has its name: attach to that"
    jobs.ask("delete", token=7)  # said again, or late
    jobs.sync()
    assert (jobs.last().error, jobs.last().token) == ("", 7)
    assert jobs.state()["state"] == "running"
    for kind in ("state", "ordered", "note", "cancel", "delete"):
        jobs.ask(kind, token=8)
        jobs.sync()
        assert (jobs.last().error, jobs.last().token) == ("", 8)
    assert jobs.keeper.jobs == 0


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_submitted_and_asked_is_answered_and_can_be_read_again(seed):
    chance = Random(seed)
    hostile = Hostile(chance, [0, FIRST], [1, 2, 9, 10, 11, 2**63, 2**64 - 2])
    jobs = Jobs()
    for number in range(60):
        cls = chance.choice([JobSubmit, JobSubmit, JobQuestion])
        message = replace(hostile.message(cls), number=number)
        if cls is JobSubmit and chance.random() < 0.7:
            frames = [encode(each) for each in part(2, 20 * number + 10)]
            message = replace(
                message, counts=u32(map(len, frames)), bodies=[b"", *(bytes(f) for each in frames for f in each)]
            )
        jobs.keeper.ask(MONITOR, message)
        jobs.go_on()
        if chance.random() < 0.5:
            jobs.sync()
        if chance.random() < 0.2:
            jobs.doubt(chance.choice(("", "nobody is heard")))
    jobs.doubt("")
    jobs.go_on(60.0)
    jobs.sync()
    answered = {answer.number for answer in jobs.answers}
    assert answered == set(range(60))
    again = Jobs(Paper(jobs.paper.segments))
    for name in ("a", "b"):
        before, after = (each.ask("state", name) or each.last().text for each in (jobs, again))
        assert before == after
