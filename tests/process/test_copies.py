"""A journal that is sent along: the standby has a copy in a directory of its own, and leads with it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support import noting, until
from support.ports import fresh_address
from support.programs import Daemons, Program
from support.two_schedulers import PATIENCE, QUICK, command, start_agents

from scaler.errors import JobError
from scaler.journal.directory import Directory

IN_STEP = "is in step: what counts is on both disks"


class Pair:
    """Two schedulers of one test with a journal each."""

    def __init__(self, daemons: Daemons, tmp_path, with_second: bool = True) -> None:
        self.daemons = daemons
        self.journals = [tmp_path / "a", tmp_path / "b"]
        self.first = daemons.start_scheduler(*QUICK, "--journal", str(self.journals[0]))
        self.addresses = [daemons.address, ""]
        if with_second:
            self.start_second()

    def start_second(self) -> Program:
        """Start the one that stands by."""
        address = self.addresses[1] or fresh_address()
        self.second = self.daemons.run(
            "scaler_scheduler", "scheduler", *QUICK, "--journal", str(self.journals[1]),
            "--standby-of", self.addresses[0], address,
        )  # fmt: skip
        self.addresses[1] = self.second.says(r"listens at (tcp://\S+)")[1]
        self.second.says("stands by for the one at")
        self.daemons.address = ",".join(self.addresses)
        return self.second

    def start_second_alone(self) -> None:
        """Start it again though the other one is not there."""
        self.second = self.daemons.run(
            "scaler_scheduler", "scheduler", *QUICK, "--journal", str(self.journals[1]),
            "--standby-of", self.addresses[0], self.addresses[1],
        )  # fmt: skip
        self.second.says("listens at")

    def start_first(self) -> Program:
        """Start it again as it was started."""
        self.first = self.daemons.run(
            "scaler_scheduler", "scheduler", *QUICK, "--journal", str(self.journals[0]), self.addresses[0]
        )
        self.first.says("listens at")
        return self.first

    def bytes_of(self, which: int) -> dict[str, bytes]:
        """The segments of one of the two."""
        return {path.name: path.read_bytes() for path in self.journals[which].glob("*.log")}


@pytest.fixture
def pair(daemons, tmp_path):
    return Pair(daemons, tmp_path)


def kill(program):
    program.signal(signal.SIGKILL)
    program.ends(5)


def test_what_is_acknowledged_is_on_both_disks_and_the_standby_leads_with_it(daemons, pair, tmp_path):
    start_agents(daemons, 2)
    pair.first.says(IN_STEP, 8)
    client = daemons.client()
    job = client.submit_job(noting(tmp_path / "ran", 0.01), range(300), name="long")
    assert sum(map(len, pair.bytes_of(1).values())) > 300, "nothing is in the copy, and the job was acknowledged"
    until(lambda: job.status().done > 100, "rows of the job that have ended")
    kill(pair.first)
    pair.second.says("leads from now on, in term 1")
    pair.second.says("has all that counts")
    assert list(job.results()) == [3 * x for x in range(300)]
    assert len((tmp_path / "ran").read_text().split()) <= 301


def test_a_hand_over_there_and_back_with_the_rest_of_the_journal(daemons, pair, tmp_path):
    start_agents(daemons, 2)
    pair.first.says(IN_STEP)
    client = daemons.client()
    job = client.submit_job(noting(tmp_path / "ran", 0.01), range(400), name="long")
    until(lambda: job.status().done > 50, "rows of the job that have ended")
    said = command("hand-over", daemons.address)
    assert said.returncode == 0, said.stderr
    pair.second.says("has all that counts")
    pair.second.says(IN_STEP)  # the first one has the copy now
    until(lambda: job.status().done > 150, "more of them")
    until(lambda: command("hand-over", daemons.address).returncode == 0, "a hand-over back")
    pair.first.says("has all that counts")
    assert list(job.results()) == [3 * x for x in range(400)]
    assert len((tmp_path / "ran").read_text().split()) == 400
    assert "whole copy" not in pair.second.text  # what the first one had was cut back, or had only to be continued


def test_a_standby_that_comes_late_or_again_is_sent_what_it_lacks(daemons, tmp_path):
    pair = Pair(daemons, tmp_path, with_second=False)
    daemons.start_agent(1)
    with daemons.client() as client:
        client.submit_job(len, ["x" * 1000] * 3000, name="early").wait(PATIENCE)
    pair.start_second()
    pair.first.says("is sent a whole copy")
    pair.first.says(IN_STEP)
    kill(pair.second)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="alone")  # takes a while: the copy that is gone may still count
        pair.first.says("goes on alone: the one at .* is away")
        pair.start_second()
        until(lambda: pair.first.text.count(IN_STEP) == 2, "a copy that is in step again")
        assert pair.bytes_of(0) == pair.bytes_of(1)
        assert pair.first.text.count("is sent a whole copy") == 1
        pair.second.signal(signal.SIGTERM)
        pair.second.ends(10)
        client.submit_job(abs, range(10), name="at once")
        assert Directory(pair.journals[1]).replay(lambda record, place: None) is None


def test_a_standby_that_leads_with_a_copy_that_is_not_in_step_says_what_may_be_missing(daemons, pair):
    pair.first.says(IN_STEP)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="there")
        pair.second.signal(signal.SIGTERM)
        pair.second.ends(10)
        client.submit_job(abs, range(10), name="missed")
    kill(pair.first)
    pair.start_second_alone()
    assert command("promote", pair.addresses[1]).returncode == 0
    pair.second.says(r"is not known to be in step .* may be missing that came after its last record, 20..-..-.. ..:")
    with daemons.client() as client:
        assert [job.name for job in client.jobs()] == ["there"]
        client.submit_job(abs, range(10), name="instead")
        # the first one comes back as it was started, with what nobody else has; and yet it is not the newer one
        pair.start_first()
        pair.second.says("is sent a whole copy")
        pair.second.says(IN_STEP)
        assert [job.name for job in client.jobs()] == ["there", "instead"]
    assert pair.bytes_of(0) == pair.bytes_of(1)
    assert list((pair.journals[0] / "aside" / "replaced").glob("*.log"))


def test_both_are_started_again_and_the_newer_copy_leads(daemons, pair):
    pair.first.says(IN_STEP)
    assert command("hand-over", daemons.address).returncode == 0
    pair.second.says(IN_STEP)
    kill(pair.first)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="newer")
    kill(pair.second)
    pair.start_first()  # it leads, and keeps no jobs before it has asked the other one
    pair.first.says("may have a newer copy of the journal")
    pair.start_second()
    pair.first.says("has a newer copy, and is to lead")
    pair.second.says("leads from now on")
    with daemons.client() as client:
        assert [job.name for job in client.jobs()] == ["newer"]
    pair.second.says(IN_STEP)
    assert pair.bytes_of(0) == pair.bytes_of(1)


def hang(journal: Path) -> Callable[[], None]:
    """Reading what is known of a journal takes as long as nobody calls what this returns, as on a disk that hangs."""
    history, aside = journal / "history", journal / "history.aside"
    history.rename(aside)
    os.mkfifo(history)

    def answer() -> None:
        said = aside.read_bytes()
        history.rename(journal / "fifo")
        aside.rename(history)
        (journal / "fifo").write_bytes(said)

    return answer


def test_a_disk_that_hangs_when_the_standby_comes_to_lead_holds_up_durable_jobs_and_nothing_else(daemons, pair):
    start_agents(daemons, 2)
    pair.first.says(IN_STEP)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="there")
        answer = hang(pair.journals[1])
        kill(pair.first)
        pair.second.says("leads from now on")
        assert client.submit(abs, -3).result(PATIENCE) == 3
        pair.second.says(rf"Journal: the journal {pair.journals[1]} can't be read: nothing has come of it for 5 s", 20)
        assert client.submit(abs, -4).result(PATIENCE) == 4
        assert "can't be read: nothing has come of it" in command("jobs", pair.addresses[1]).stderr
        answer()
        pair.second.says("has all that counts")
        until(lambda: command("jobs", pair.addresses[1]).returncode == 0, "durable jobs that are kept")
        assert [job.name for job in client.jobs()] == ["there"]
    assert pair.second.text.count("nothing has come of it") == 1


def test_the_end_of_a_scheduler_does_not_wait_for_a_disk_that_hangs(daemons, pair):
    start_agents(daemons, 2)
    pair.first.says(IN_STEP)
    hang(pair.journals[1])
    kill(pair.first)
    pair.second.says("leads from now on")
    pair.second.signal(signal.SIGTERM)
    pair.second.ends(15)


def test_one_that_is_started_again_alone_waits_for_the_other_unless_somebody_promotes_it(daemons, pair):
    pair.first.says(IN_STEP)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="kept")
    kill(pair.second)
    kill(pair.first)
    pair.start_first()
    pair.first.says("may have a newer copy of the journal")
    said = command("jobs", pair.addresses[0])
    assert "durable jobs are not kept yet: the scheduler at" in said.stderr
    assert command("promote", pair.addresses[0]).returncode == 0
    with daemons.client() as client:
        assert [job.name for job in client.jobs()] == ["kept"]


def test_a_journal_of_somebody_else_is_left_as_it_is(daemons, tmp_path):
    other = Daemons(tmp_path / "other")
    (tmp_path / "other").mkdir()
    try:
        other.start_scheduler(*QUICK, "--journal", str(tmp_path / "b"))
        with other.client() as client:
            client.submit_job(abs, range(10), name="theirs")
    finally:
        other.close()
    pair = Pair(daemons, tmp_path, with_second=False)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="ours")
    before = pair.bytes_of(1)
    pair.start_second()
    pair.first.says("has another journal, which is left as it is: move it away")
    assert pair.bytes_of(1) == before


def test_durable_jobs_are_not_handed_to_a_standby_that_keeps_none(daemons, tmp_path):
    pair = Pair(daemons, tmp_path, with_second=False)
    second = daemons.run("scaler_scheduler", "scheduler", *QUICK, "--standby-of", pair.addresses[0], fresh_address())
    address = second.says(r"listens at (tcp://\S+)")[1]
    daemons.address = f"{pair.addresses[0]},{address}"
    pair.first.says("keeps none: it would lead without durable jobs; give it --journal DIRECTORY")
    start_agents(daemons, 2)
    with daemons.client() as client:
        job = client.submit_job(abs, range(-10, 0), name="kept")
        refused = command("hand-over", daemons.address)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "can't keep the durable jobs of this one" in refused.stderr
        assert job.wait(PATIENCE)
    assert command("promote", address).returncode == 0
    second.says("leads from now on")


def test_a_copy_that_is_damaged_is_mended_with_what_the_other_has(daemons, pair):
    pair.first.says(IN_STEP)
    with daemons.client() as client:
        client.submit_job(len, ["x" * 100] * 500, name="whole")
        kill(pair.second)
        (path,) = pair.journals[1].glob("*.log")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        pair.start_second()
        until(lambda: pair.first.text.count(IN_STEP) == 2, "a copy that is in step again")
    assert pair.bytes_of(0) == pair.bytes_of(1)
    assert Directory(pair.journals[1]).replay(lambda record, place: None) is None


def test_a_disk_that_gives_back_other_bytes_is_said_once_and_the_pair_stays_one(daemons, tmp_path):
    pair = Pair(daemons, tmp_path, with_second=False)
    with daemons.client() as client:
        client.submit_job(len, ["x" * 100] * 500, name="whole")
    (path,) = pair.journals[0].glob("*.log")
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(data) // 2)
        file.write(bytes([data[len(data) // 2] ^ 1]))
    pair.start_second()
    pair.first.says("has not come to be in step 3 times")
    with path.open("r+b") as file:  # as it was
        file.write(data)
    pair.first.says(IN_STEP)
    assert pair.second.text.count("sends a journal that is damaged") == 1
    assert pair.bytes_of(0) == pair.bytes_of(1)


def test_one_of_two_that_share_a_journal_is_started_again_while_the_other_leads(daemons, tmp_path):
    pair = Pair(daemons, tmp_path, with_second=False)
    pair.journals[1] = pair.journals[0]
    pair.start_second()
    start_agents(daemons, 2)
    with daemons.client() as client:
        client.submit_job(abs, range(10), name="there").wait(PATIENCE)
        until(lambda: Directory(pair.journals[0]).history().is_shared, "a journal that is known to be shared")
        kill(pair.first)
        pair.second.says("leads from now on")
        until(lambda: [job.name for job in client.jobs()] == ["there"])
        pair.start_first()
        pair.first.says("stands by for the one at")
        client.submit_job(abs, range(10), name="later").wait(PATIENCE)
        # the one that leads may hear half a second later than the log has it that the other one stands by
        until(lambda: command("hand-over", daemons.address).returncode == 0, "a hand-over")
        until(lambda: [job.name for job in client.jobs()] == ["there", "later"])


def test_whoever_can_not_know_that_it_still_leads_acknowledges_nothing(daemons, pair):
    (agent,) = start_agents(daemons, 1)
    pair.first.says(IN_STEP)
    with daemons.client() as client:
        kill(pair.second)
        kill(agent)
        pair.first.says("Journal: it can't be written: the one at .* is away, and too few agents are heard")
        with pytest.raises(JobError, match="nothing is accepted until it can"):
            client.submit_job(abs, range(10), name="too late")
        assert command("promote", pair.addresses[0]).returncode == 0
        pair.first.says("goes on alone: the one at .* is away")
        until(lambda: "it is written again" in pair.first.text)
        client.submit_job(abs, range(10), name="alone")
