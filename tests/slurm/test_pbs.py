"""PBS's commands for real: those that Slurm has (package slurm-wlm-torque), over a Slurm on this machine."""

import shutil
import sys

import pytest
import slurm_here
from support import until
from support.programs import program

from scaler.provisioning.provider import HostTemplate, JobState, ProviderError
from scaler.provisioning.registry import make_provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


@pytest.fixture
def slurm(tmp_path, traces):
    if shutil.which("qsub") is None:
        pytest.skip("needs Slurm's commands of PBS's names (package slurm-wlm-torque)")
    made = slurm_here.Slurm(tmp_path)
    yield made
    made.close()


def test_hosts_come_and_go(slurm, daemons, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    provider = make_provider("pbs", {"log": str(tmp_path / "agents-%j.log")})
    print(provider.describe())
    daemons.address = f"tcp://{slurm.ip}:0"
    daemons.start_scheduler()
    tool = tmp_path / "agent"
    command = program("scaler_cluster", "cluster")
    path = ":".join(sys.path)
    tool.write_text(f'#!/bin/sh\nPYTHONPATH=\'{path}\' exec {command[0]} -c "{command[2]}" "$@"\n')
    tool.chmod(0o755)
    command = (str(tool), daemons.address, "--workers", "1")
    ids = provider.submit(2, HostTemplate("lab", 1, command, walltime=120.0))
    try:
        until(lambda: daemons.scheduler.text.count(" joined") == 2, "agents", 30)
        jobs = provider.list("lab")
        assert sorted(job.id for job in jobs) == sorted(ids)
        assert {(job.name, job.state) for job in jobs} == {("lab-1", JobState.RUNNING)}
        assert {job.host for job in jobs} <= {"n1", "n2", "n3", "n4"}
        assert daemons.client().submit(divmod, 7, 2).result(20) == (3, 1)
        with pytest.raises(ProviderError, match=r"qsub: .*nvalid"):
            make_provider("pbs", {"queue": "nowhere"}).submit(1, HostTemplate("lab", 2, command))
    finally:
        provider.cancel(ids)
    until(lambda: not [job for job in provider.list("lab") if job.state is not JobState.ENDED], "the end", 30)
    provider.cancel(ids)
    logs = [path.read_text() for path in tmp_path.glob("agents-*.log")]
    assert ["Worker[0] started" in log for log in logs] == [True, True]
    assert list(here.iterdir()) == [], "jobs left files where they were asked for"
