"""PBS's commands for real: those that Slurm has (package slurm-wlm-torque), over a Slurm on this machine."""

import shutil

import pytest
import slurm_here
from support.batch_sessions import hosts_come_and_go

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
    daemons.address = f"tcp://{slurm.ip}:0"
    hosts_come_and_go("pbs", daemons, tmp_path, log="%j", hosts=["n1", "n2", "n3", "n4"], refused=r"qsub: .*nvalid")
    assert list(here.iterdir()) == [], "jobs left files where they were asked for"
