"""What hosts from a real batch system go through, whichever it is."""

import shlex

import pytest

from scaler.provisioning.provider import HostTemplate, JobState, ProviderError
from scaler.provisioning.registry import make_provider
from support.programs import environment, program
from support.waiting import until


def agent_program(directory):
    """A program in this directory that is `scaler_cluster` as the tests have it."""
    tool = directory / "scaler_cluster"
    path = environment()["PYTHONPATH"]
    command = shlex.join(program("scaler_cluster", "cluster"))
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {command} "$@"\n')
    tool.chmod(0o755)
    return str(tool)


def hosts_come_and_go(system, daemons, directory, *, log, hosts, refused):
    """Two hosts join, are listed, run a task, leave what they print in their logs, and are gone when cancelled.

    `log`: what the system puts in the name of a log for each job; `hosts`: the names that it may have given them;
    `refused`: what it says of a queue that is not there.
    """

    def logs():
        return list(directory.glob("agents-*.log"))

    provider = make_provider(system, {"log": str(directory / f"agents-{log}.log")})
    print(provider.describe())
    daemons.start_scheduler()
    command = (agent_program(directory), daemons.address, "--workers", "1")
    assert provider.list("lab") == []
    ids = provider.submit(2, HostTemplate("lab", 1, command, walltime=120.0))
    print(ids)
    try:
        until(lambda: daemons.scheduler.text.count(" joined") == 2, "agents", 30)
        jobs = provider.list("lab")
        print(jobs)
        assert sorted(job.id for job in jobs) == sorted(ids)
        assert {(job.name, job.state) for job in jobs} == {("lab-1", JobState.RUNNING)}
        assert {job.host for job in jobs} <= set(hosts)
        assert daemons.client().submit(divmod, 7, 2).result(20) == (3, 1)
        with pytest.raises(ProviderError, match=refused) as told:
            make_provider(system, {"queue": "nowhere"}).submit(1, HostTemplate("lab", 2, command))
        print(told.value)
        until(lambda: [path.read_text().count("Worker[0] started") for path in logs()] == [1, 1], "what they print")
    finally:
        provider.cancel(ids)
    until(lambda: not [job for job in provider.list("lab") if job.state is not JobState.ENDED], "the end", 30)
    provider.cancel(ids)
