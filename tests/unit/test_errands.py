"""What a provider answers that is slow, lies, or is not made as the page says."""

import logging
import queue
import re
import threading

import pytest

from scaler.cli import provision
from scaler.config import ProvisionConfig
from scaler.provisioning import provisioner as provisioners
from scaler.provisioning.core import events as ev
from scaler.provisioning.errands import Errands
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError, WrongRequest, WrongSetup
from scaler.provisioning.provisioner import Provisioner
from scaler.provisioning.registry import make_provider
from scaler.transport import Security

TEMPLATE = HostTemplate("work", 1, ("agent",))
MINE = Job("1", "work-1", JobState.RUNNING)


class Asked:
    """A provider that answers with what it is given, or raises it; and the errands that ask it."""

    def __init__(self, *, submit=("1",), jobs=()):
        self.answers = {"submit": submit, "list": jobs}
        self.cancelled = []
        self.told = queue.SimpleQueue()
        self.errands = Errands(self, "work", self.told.put)
        self.errands.start()

    def submit(self, n, template):
        return self._answer("submit")

    def list(self, tag):
        return self._answer("list")

    def cancel(self, ids):
        self.cancelled.append(ids)
        raise SystemExit(3)

    def _answer(self, function):
        answer = self.answers[function]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def submits(self):
        self.errands.submit(1, 2, TEMPLATE)
        return self.told.get(timeout=10)

    def lists(self):
        self.errands.list()
        return self.told.get(timeout=10)


@pytest.mark.parametrize("answer", [None, 5, "17", {"1": 2}, [], [1], [""], ["1", "1"], ["1", "2", "3"]], ids=repr)
def test_what_is_no_answer_to_a_request_is_a_request_that_failed_and_others_can_be_made(answer):
    asked = Asked(submit=answer)
    failed = asked.submits()
    assert isinstance(failed, ev.SubmitFailed)
    assert "the provider's submit() has returned" in failed.reason
    asked.answers["submit"] = iter(["1", "2"])
    assert asked.submits() == ev.Submitted(1, ("1", "2"))


@pytest.mark.parametrize(
    "answer", [None, "jobs", [("1", "work-1")], [Job("", "work-1", JobState.RUNNING)], [Job("1", "work-1", "running")]],
    ids=repr,
)  # fmt: skip
def test_what_is_no_list_of_jobs_is_one_that_failed(answer):
    asked = Asked(jobs=answer)
    failed = asked.lists()
    assert isinstance(failed, ev.ListFailed)
    assert "the provider's list() has" in failed.reason
    asked.answers["list"] = [MINE]
    assert asked.lists().jobs == (MINE,)


@pytest.mark.parametrize("error", [KeyError("cpu"), SystemExit(2), RecursionError("a\n" * 1000)], ids=repr)
def test_whatever_a_provider_raises_is_told_in_a_line(error):
    asked = Asked(submit=error, jobs=error)
    for told in (asked.submits(), asked.lists()):
        assert told.reason.startswith(type(error).__name__)
        assert "\n" not in told.reason
        assert len(told.reason) < 400
    asked.errands.cancel(("1",))
    asked.answers["list"] = [MINE]
    assert asked.lists().jobs == (MINE,)
    assert asked.cancelled == [("1",)]


def test_jobs_of_others_in_a_list_are_left_alone_and_those_that_were_asked_for_are_known_by_their_ids(caplog):
    others = Job("8", "works-1", JobState.RUNNING)
    asked = Asked(submit=["7"], jobs=[MINE, others, Job("7", "cut off", JobState.PENDING, "", "waits\nfor cores")])
    asked.submits()
    with caplog.at_level(logging.WARNING, "scaler.provision"):
        found = [asked.lists().jobs for _ in range(2)]
    assert found == [(MINE, Job("7", "cut off", JobState.PENDING, "", "waits for cores"))] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "the provider's list() has jobs of others, like 8 (works-1): they are left alone"
    ]


def test_a_request_that_will_never_be_taken_is_told_of_with_what_to_do():
    failed = Asked(submit=WrongRequest("sbatch: invalid partition specified: debgu")).submits()
    assert failed.is_final
    advice = "(it is asked again in 15 min; change its options, and start it anew)"
    assert failed.reason == f"sbatch: invalid partition specified: debgu {advice}"
    assert not Asked(submit=ProviderError("sbatch: try again")).submits().is_final


def test_the_end_of_all_jobs_is_waited_for_less_long_where_nothing_is_answered(monkeypatch, caplog):
    monkeypatch.setattr(provisioners, "OUTAGE_TIMEOUT", 0.2)

    class Away:
        def list(self, tag):
            raise ProviderError("squeue: Unable to contact slurm controller")

    config = ProvisionConfig("tcp://127.0.0.1:1", "ours", insecure=True)
    provisioner = Provisioner(config, Away(), Security.none())
    provisioner._core.jobs.add(("7",), 0.0)
    provisioner.tell(ev.End())
    with caplog.at_level(logging.ERROR, "scaler.provision"):
        assert provisioner.run() == 1
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.match(r"jobs are left that did not end in 0\.\d+ s: 7; squeue: Unable to contact slurm controller", said)


@pytest.mark.parametrize(("keep", "fate"), [(True, "hosts end by themselves"), (False, "all jobs are cancelled")])
def test_without_a_scheduler_it_ends_and_says_what_becomes_of_the_jobs(keep, fate, caplog):
    class Empty:
        def list(self, tag):
            return []

    config = ProvisionConfig("tcp://127.0.0.1:1", "ours", insecure=True, orphan_timeout=1.0, keep=keep)
    with caplog.at_level(logging.ERROR, "scaler.provision"):
        assert Provisioner(config, Empty(), Security.none(), is_new=True).run() == 1
    assert [record.getMessage() for record in caplog.records] == [f"no scheduler for 1 s (orphan_timeout): {fate}"]


def test_a_provider_that_does_not_answer_is_told_of_and_so_is_it_at_the_end(monkeypatch, caplog):
    monkeypatch.setattr(provisioners, "PATIENCE", 0.0)
    monkeypatch.setattr(provisioners, "END_TIMEOUT", 0.2)
    release, said = threading.Event(), []

    class Deaf:
        def list(self, tag):
            release.wait(30)

    def on_status(status):
        said.extend(status.lines)
        if any("has not answered list() for" in line for line in said):
            provisioner.tell(ev.End())

    config = ProvisionConfig("tcp://127.0.0.1:1", "ours", insecure=True)
    provisioner = Provisioner(config, Deaf(), Security.none(), on_status=on_status)
    provisioner._core.jobs.add(("1",), 0.0)
    try:
        with caplog.at_level(logging.WARNING, "scaler.provision"):
            assert provisioner.run() == 1
    finally:
        release.set()
    lines = [record.getMessage() for record in caplog.records if "has not answered" in record.getMessage()]
    assert lines[-1].startswith("jobs are left that did not end in 0.2 s: 1; the provider has not answered list() for")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("script", "timeout", "words"),
    [
        ("exec sleep 1000", 0.05, "squeue did not answer within 0.05 s"),
        ("echo no controller >&2; exit 1", 20.0, "squeue: no controller"),
    ],
)
def test_a_system_that_does_not_answer_at_the_start_is_asked_again_and_one_that_is_not_here_is_not(
    script, timeout, words, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    provider, told = make_provider("slurm", {"timeout": timeout}), []
    with pytest.raises(WrongSetup, match="there is no command squeue here"):
        provision._described(provider, "slurm", told.append)
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "squeue").chmod(0o755)
    assert provision._described(provider, "slurm", told.append) == "slurm, which is asked until it answers"
    assert told == [ev.ListFailed(words)]
