"""The printed manifests, taken by a real Kubernetes on this machine: part of what `make test-kubernetes` runs."""

import os
import signal
import time

import pytest
from click.testing import CliRunner
from support import until

import scaler
from scaler.cli.kubernetes import command
from scaler.provisioning.manifests import ALIVE

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

IMAGE, TAG = "registry.example/lab:1", "scaler"


@pytest.fixture
def applied(lab, traces):
    """A cluster of the manifests, by kubectl as the page says."""
    done = CliRunner().invoke(
        command, ["--image", IMAGE, "--tag", TAG, "--agents", "2", "--cpu", "500m"], standalone_mode=False
    )
    assert done.exit_code == 0, done.output
    print(f"\n{lab.kubectl('apply', '-f', '-', said=done.output).strip()}".replace("\n", ", "))
    yield lab
    lab.kubectl("delete", "all,secret", "-l", f"scaler-tag={TAG}")


def pods_of(lab, role):
    return lab.pods(f"scaler-tag={TAG},scaler-role={role}")


def conditions(pod):
    return {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}


def ready(lab, role):
    return [name for name, pod in pods_of(lab, role).items() if conditions(pod).get("Ready") == "True"]


def restarts(pod):
    return pod["status"]["containerStatuses"][0]["restartCount"]


def where(lab):
    """The address of the service, which a program on a node reaches."""
    service = lab.get(f"/api/v1/namespaces/default/services/{TAG}-scheduler")
    return f"tcp://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"


def slow_of():
    """A function that travels whole: pods can't import this module."""

    def slow(n):
        time.sleep(0.2)
        return n

    return slow


def test_a_cluster_of_manifests_works_and_is_probed(applied):
    lab = applied
    began, slow = time.monotonic(), slow_of()
    with scaler.Client(until(lambda: where(lab)), timeout=120, reconnect=120) as client:
        assert client.map(divmod, [(n, 7) for n in range(100)]) == [divmod(n, 7) for n in range(100)]
        print(f"the first results after {time.monotonic() - began:.1f} s")
        for role, count in (("scheduler", 1), ("agent", 2), ("dashboard", 1)):
            until(lambda: len(ready(lab, role)) == count, f"{role}: all ready", 120)  # noqa: B023
        print(f"all ready after {time.monotonic() - began:.1f} s")
        # an agent that hangs is ended by its probe, and started again
        victim = ready(lab, "agent")[0]
        first = lab.processes(victim)[0]
        os.kill(first, signal.SIGSTOP)
        os.utime(f"/proc/{first}/root{ALIVE}", (0, 0))  # as if it had hung for more than a minute
        stopped = time.monotonic()
        until(lambda: restarts(lab.pods()[victim]) == 1, "the agent that hangs to be started again", 240)
        print(f"an agent that hangs is started again after {time.monotonic() - stopped:.1f} s")
        until(lambda: len(ready(lab, "agent")) == 2, "it to be ready", 60)
        # the scheduler is killed in its pod, then its pod is deleted: each time another takes its place
        (head,) = pods_of(lab, "scheduler")
        for end in (lambda: os.kill(lab.processes(head)[0], signal.SIGKILL), lambda: lab.delete("Pod", head)):
            futures = [client.submit(slow, n) for n in range(40)]
            until(lambda: any(future.done() for future in futures), "some work", 60)  # noqa: B023
            end()
            assert [future.result(120) for future in futures] == list(range(40))
        until(lambda: len(ready(lab, "scheduler")) == 1, "the next scheduler to be ready", 60)
    print("kill -9 of the scheduler and deletion of its pod: 80 of 80 tasks done")
    (after,) = [name for name in ready(lab, "scheduler") if name != head]
    for name, pod in lab.pods().items():
        assert restarts(pod) == (name == victim), f"{name}: {lab.said(name)}"
    assert "agent" in lab.said(after)
