"""Provisioners that do not know all of their jobs: none is left in the queue, and what is wrong is said."""

import os
import signal

from support import until

from scaler import Cluster


def test_the_end_of_a_cluster_whose_provisioner_has_just_died_is_that_of_its_jobs(fake_slurm):
    with Cluster("slurm", minimum=2, maximum=2, interval=0.2, list_interval=0.2, settle_time=0.1) as cluster:
        until(lambda: len(fake_slurm.running()) == 2, "two jobs", 40)
        provisioner = cluster._provisioner.process
        os.kill(provisioner.pid, signal.SIGKILL)
        provisioner.wait()
    assert fake_slurm.running() == {}


def provide(daemons, tmp_path, options=""):
    daemons.start_scheduler()
    config = tmp_path / "provision.toml"
    text = f'address = "{daemons.address}"\nprovider = "slurm"\ntag = "work"\nminimum = 1\ninterval = 0.2\n'
    config.write_text(f"{text}list_interval = 0.2\nsettle_time = 0.1\n[options]\n{options}")
    return daemons.run("scaler_provision", "provision", str(config))


def test_a_request_without_an_answer_at_the_end_leaves_no_job(daemons, fake_slurm, tmp_path):
    sbatch = fake_slurm.bin / "sbatch"
    sbatch.rename(fake_slurm.bin / "sbatch.real")
    sbatch.write_text(f"#!/bin/sh\n'{fake_slurm.bin}/sbatch.real' \"$@\"\ntouch '{tmp_path}/taken'\nexec sleep 60\n")
    sbatch.chmod(0o755)
    program = provide(daemons, tmp_path, "timeout = 2.0\n")
    until(lambda: (tmp_path / "taken").exists(), "a job", 40)
    program.signal(signal.SIGTERM)
    assert program.ends(20) == 0, program.text
    assert fake_slurm.running() == {}


def test_a_system_that_does_not_list_its_jobs_is_told_of_in_the_log_and_where_the_hosts_are(
    daemons, fake_slurm, tmp_path
):
    squeue = fake_slurm.bin / "squeue"
    squeue.rename(fake_slurm.bin / "squeue.real")
    squeue.write_text(
        f"#!/bin/sh\n[ $1 = --version ] || [ ! -e '{tmp_path}/down' ] && exec '{fake_slurm.bin}/squeue.real' \"$@\"\n"
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n"
    )
    squeue.chmod(0o755)
    (tmp_path / "down").touch()
    program = provide(daemons, tmp_path)
    program.says("WARNING.*squeue: slurm_load_jobs error: Unable to contact slurm controller")
    status = daemons.run("scaler", "main", "status", daemons.address)
    assert status.ends(10) == 0
    assert "hosts     of slurm work: 1 desired, 0 pending" in status.text
    assert "\n            squeue: slurm_load_jobs error" in status.text
    program.signal(signal.SIGTERM)
    program.says("looks for jobs that are not known yet")
    (tmp_path / "down").unlink()
    assert program.ends(20) == 0, program.text
