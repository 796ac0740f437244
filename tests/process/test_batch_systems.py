"""Hosts from PBS, Grid Engine, LSF and HTCondor, by commands that speak as theirs and run the scripts for real."""

import os
import shlex

import pytest
from support import until
from support.batch_systems import DOWN, install

from scaler.config import OptionError
from scaler.provisioning.provider import HostTemplate, JobState, ProviderError
from scaler.provisioning.registry import make_provider

SYSTEMS = ["pbs", "sge", "lsf", "htcondor"]

AGENT = """\
#!/bin/sh
here=$(dirname "$0")
for last; do :; done
echo said
echo complained >&2
printf '%s\\n' "$SAID" "$@" > "$here/new.$$"
mv "$here/new.$$" "$here/up-$$"
exec sleep 1000
"""


@pytest.fixture(params=SYSTEMS)
def system(request):
    return request.param


@pytest.fixture
def batch(system, tmp_path, monkeypatch, traces):
    """A directory with the system's commands, and an agent with a blank and a quote in its name."""
    for name, value in install(tmp_path, system).items():
        monkeypatch.setenv(name, value)
    agent = tmp_path / "scaler's cluster"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path
    assert os.listdir(tmp_path / "here") == [], "jobs left files where they were asked for"


def template(batch, request=1, **more):
    command = (str(batch / "scaler's cluster"), "tcp://head:2345", "--workers", "2")
    return HostTemplate("lab-7", request, command, environment={"SAID": "hello"}, workers=2, **more)


def agents(batch):
    found = [path.read_text().splitlines() for path in batch.glob("up-*")]
    return sorted(found, key=lambda lines: lines[lines.index("--job") + 1])


def test_jobs_run_and_are_found_and_cancelled(batch, system):
    provider = make_provider(system, {})
    assert "queue (default)" in provider.describe()
    assert provider.list("lab-7") == []
    ids = provider.submit(2, template(batch, walltime=90.0))
    assert len(set(ids)) == 2
    try:
        up = until(lambda: len(found := agents(batch)) == 2 and found)
        for lines, job in zip(up, sorted(ids), strict=True):
            assert lines[:4] == ["hello", "tcp://head:2345", "--workers", "2"]
            assert lines[lines.index("--job") + 1] == job
        jobs = provider.list("lab-7")
        assert sorted(job.id for job in jobs) == sorted(ids)
        assert {(job.name, job.state, job.host, job.reason) for job in jobs} == {
            ("lab-7-1", JobState.RUNNING, "node7", "")
        }
        assert provider.list("lab") == []
        # another one finds them again: nothing is known but what the system says
        assert sorted(job.id for job in make_provider(system, {}).list("lab-7")) == sorted(ids)
    finally:
        provider.cancel(ids)
    until(lambda: not [job for job in provider.list("lab-7") if job.state is not JobState.ENDED])
    provider.cancel(ids)


def test_what_jobs_print_is_where_the_option_says(batch, system):
    log = batch / "agents.log"
    provider = make_provider(system, {"log": str(log)})
    ids = provider.submit(2, template(batch))
    until(lambda: len(agents(batch)) == 2)
    provider.cancel(ids)
    assert sorted(log.read_text().split()) == ["complained"] * 2 + ["said"] * 2


def test_a_system_that_does_not_answer_is_not_described(batch, system):
    (batch / "state" / "down").touch()
    with pytest.raises(ProviderError, match=DOWN[system].partition("(")[0]):
        make_provider(system, {}).describe()


def test_a_job_that_waits_says_why_in_the_system_s_words(batch, system):
    (batch / "state" / "hold").touch()
    provider = make_provider(system, {})
    ids = provider.submit(1, template(batch))
    (job,) = provider.list("lab-7")
    assert (job.id, job.state, job.host) == (ids[0], JobState.PENDING, "")
    words = {
        "pbs": "Not Running: Insufficient amount of resource: ncpus", "sge": "Eqw",
        "lsf": "New job is waiting for scheduling", "htcondor": "submitted on hold at user's request",
    }  # fmt: skip
    assert job.reason == words[system]
    provider.cancel(ids)
    assert provider.list("lab-7") == []


@pytest.mark.parametrize("system", ["pbs"], indirect=True)
def test_options_and_templates(batch, system):
    provider = make_provider(system, {"queue": "night", "account": "me", "memory": "2gb", "directives": ["-m n"]})
    lines = provider.script(1, template(batch, walltime=3661.0)).splitlines()
    assert lines[:2] == ["#!/bin/sh", "#PBS -N lab-7-1"]
    assert "#PBS -l nodes=1:ppn=2" in lines
    assert lines[-6:-1] == ["#PBS -q night", "#PBS -A me", "#PBS -l mem=2gb", "#PBS -l walltime=01:01:01", "#PBS -m n"]
    assert shlex.split(lines[-1])[1] == str(batch / "scaler's cluster")
    assert provider.preview(3, template(batch)).startswith(
        "# qsub -o /dev/null -j oe, with a file with this, 3 times:\n#!"
    )
    mine = batch / "mine"
    mine.write_text("#!/bin/sh\n#PBS -N $name\n$directives\nmodule load python\nexec $command --job $$PBS_JOBID\n")
    assert "module load python" in make_provider(system, {"template": str(mine)}).script(1, template(batch))
    mine.write_text("$nobody")
    with pytest.raises(OptionError, match="has a name that is not known"):
        make_provider(system, {"template": str(mine)})
    with pytest.raises(ProviderError, match=r"^qsub: qsub: Unauthorized Request$"):
        make_provider(system, {"queue": "closed"}).submit(2, template(batch))


@pytest.mark.parametrize(
    ("name", "command"), [("pbs", "qsub"), ("sge", "qsub"), ("lsf", "bsub"), ("htcondor", "condor_submit")]
)
def test_without_the_commands_one_line_says_so(name, command, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert os.environ["PATH"] == str(tmp_path)
    with pytest.raises(ProviderError, match=f"there is no command {command} here: run this where"):
        make_provider(name, {}).submit(1, HostTemplate("lab", 1, ("scaler_cluster", "tcp://head:2345")))
