"""Hosts from a real Kubernetes on this machine: what `make test-kubernetes` runs. Prints its figures."""

import contextlib
import os
import signal
import time

import pytest
from lab import KINDS
from support import until, working
from support.programs import Daemons

import scaler
from scaler.transport import load_or_create

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

IMAGE = "registry.example/lab:1"


@pytest.fixture
def daemons(traces, tmp_path):
    made = Daemons(tmp_path)
    made.address = "tcp://10.88.0.1:0"
    yield made
    made.close()


def cluster_of(**more):
    options = {"maximum": 4, "workers": 1, "list_interval": 0.5, "image": IMAGE}
    return scaler.Cluster("kubernetes", **{**options, **more})


def note_of(directory):
    """A function that leaves a file for each time that it begins, with the name of its host."""

    def note(n, seconds):
        import os
        import socket
        import time

        with open(os.path.join(directory, str(n)), "a") as file:
            file.write(socket.gethostname() + "\n")
        time.sleep(seconds)
        return n

    return note


def phases(lab, tag):
    """Pods of a cluster by what they are in: counts."""
    found = {}
    for pod in lab.pods(f"scaler-tag={tag}").values():
        phase = pod["status"]["phase"]
        found[phase] = found.get(phase, 0) + 1
    return found


def test_from_nothing_to_the_first_result(lab, traces):
    print(f"\n{lab.kubectl('version', '--short').strip()}".replace("\n", ", "))
    began = time.monotonic()
    with cluster_of(workers=2) as cluster, scaler.Client(cluster) as client:
        assert client.submit(pow, 2, 3).result(120) == 8
        first = time.monotonic()
        (pod,) = lab.pods(f"scaler-tag={cluster.tag}").values()
        name = pod["metadata"]["name"]
        assert pod["spec"]["nodeName"] in ("n1", "n2")
        until(lambda: is_ready(lab.pods()[name]), "the pod to be ready", 30)
        assert "Worker[1] started" in lab.said(name)
        assert len([line for line in lab.kubectl("get", "pods").splitlines() if name in line]) == 1
        closing = time.monotonic()
    print(f"the first result came after {first - began:.1f} s; the end took {time.monotonic() - closing:.1f} s")
    assert lab.pods() == {}


def is_ready(pod):
    """Kubernetes' own opinion."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def test_pods_come_and_go_with_the_work(lab, traces):
    work, most = working(), 0
    with cluster_of(drain_time=4.0, idle_time=3.0, cpu="500m") as cluster:
        with scaler.Client(cluster) as client:
            futures = [client.submit(work, n, 0.5) for n in range(120)]

            def done():
                nonlocal most
                most = max(most, len(lab.pods()))
                return all(future.done() for future in futures)

            until(done, "the work", 120)
            assert [future.result() for future in futures] == list(range(120))
        until(lambda: not lab.pods(), "pods to go when there is nothing to do", 60)
        cluster.scale(2)
        until(lambda: cluster.status["running"] == 2, "two pods", 60)
        cluster.adapt(0, 4)
        until(lambda: not lab.pods(), "pods to go when nobody wants them", 60)
    print(f"\n120 tasks of 0.5 s: 120 done, at most {most} pods at once (maximum 4), 0 left")
    assert 2 <= most <= 4


def test_what_the_scheduler_of_kubernetes_says_is_told(lab, traces):
    with cluster_of(minimum=3, cpu="3") as cluster:
        lines = until(lambda: [line for line in cluster.status.get("lines", ()) if "cpu" in line], "its words", 60)
        assert "0/2 nodes are available: 2 Insufficient cpu" in lines[0]
        until(lambda: cluster.status["running"] == 2, "those for which there is room", 60)
        assert (cluster.status["pending"], phases(lab, cluster.tag)) == (1, {"Running": 2, "Pending": 1})
        print(f"\n{lines[0]}")
        cluster.scale(2)
        until(lambda: phases(lab, cluster.tag) == {"Running": 2}, "the third to be taken back", 60)
    with cluster_of(minimum=1, image="absent/lab:1") as cluster:
        lines = until(lambda: [line for line in cluster.status.get("lines", ()) if "absent" in line], "its words", 60)
        assert 'ImagePullBackOff: Back-off pulling image "absent/lab:1"' in lines[0]


def test_a_pod_that_is_killed_costs_no_work(lab, traces):
    work = working()
    with cluster_of(minimum=2) as cluster, scaler.Client(cluster) as client:
        futures = [client.submit(work, n, 0.5) for n in range(60)]
        until(lambda: sum(future.done() for future in futures) > 5, "some work", 60)
        name = sorted(lab.pods())[0]
        os.kill(lab.processes(name)[0], signal.SIGKILL)
        until(lambda: name not in lab.pods() or lab.pods()[name]["status"]["phase"] == "Failed", "its end", 30)
        until(lambda: phases(lab, cluster.tag).get("Running", 0) >= 2, "another in its place", 60)
        assert [future.result(120) for future in futures] == list(range(60))
    print("\na pod was killed: 60 of 60 tasks done")


def test_a_pod_that_is_deleted_hands_over_its_work(lab, daemons):
    """Deleted by others, as when its node is emptied: that is announced, and no strike against what it runs."""
    notes = lab.shared / "notes"
    notes.mkdir()
    daemons.start_scheduler("--retries-on-loss", "1")
    note = note_of(str(notes))
    with cluster_of(address=daemons.address, minimum=1, maximum=1, grace=15, agent_options=("--drain-grace", "1")):
        client = daemons.client()
        long = client.submit(note, 0, 6.0)
        path = notes / "0"
        for times in (1, 2, 3):
            until(lambda: path.exists() and len(path.read_text().split()) == times, f"its start number {times}", 60)  # noqa: B023
            host = path.read_text().split()[-1]
            lab.delete("Pod", host)
        assert long.result(120) == 0
        assert len(set(path.read_text().split())) == 4
        # a row that fits into the grace is finished where it is
        futures = [client.submit(note, n, 0.4) for n in range(1, 30)]
        until(lambda: any(future.done() for future in futures), "some work", 60)
        lab.delete("Pod", next(name for name, pod in lab.pods().items() if "deletionTimestamp" not in pod["metadata"]))
        assert [future.result(120) for future in futures] == list(range(1, 30))
        again = sum(len((notes / str(n)).read_text().split()) > 1 for n in range(1, 30))
        print(f"\n4 pods deleted: 30 of 30 tasks done, {again} of the short ones begun twice, retries_on_loss=1")
        assert again == 0


def test_the_provisioner_is_killed(lab, daemons, tmp_path):
    daemons.start_scheduler()
    config = tmp_path / "provision.toml"
    config.write_text(
        f'address = "{daemons.address}"\nprovider = "kubernetes"\ntag = "killed"\nmaximum = 4\nworkers = 1\n'
        f'drain_time = 4.0\nidle_time = 3.0\nlist_interval = 0.5\n[options]\nimage = "{IMAGE}"\n'
    )
    work, seen, most = working(), set(), 0
    client = daemons.client(reconnect=60.0)
    futures = [client.submit(work, n, 0.4) for n in range(200)]

    def done():
        nonlocal most
        there = lab.pods()
        seen.update(there)
        most = max(most, len(there))
        return sum(future.done() for future in futures)

    provisioner = daemons.run("scaler_provision", "provision", str(config))
    for share in (20, 60, 100):
        until(lambda: done() >= share, f"{share} tasks", 120)  # noqa: B023
        provisioner.process.kill()
        provisioner.process.wait()
        before = {name: pod["metadata"]["uid"] for name, pod in lab.pods("scaler-tag=killed").items()}
        provisioner = daemons.run("scaler_provision", "provision", str(config))
        provisioner.says("found . jobs of this cluster", 60)
        after = {name: pod["metadata"]["uid"] for name, pod in lab.pods("scaler-tag=killed").items()}
        assert all(after.get(name, uid) == uid for name, uid in before.items()), "a pod was made anew"
    until(lambda: done() == len(futures), "all of the work", 180)
    assert [future.result() for future in futures] == list(range(200))
    until(lambda: not lab.pods(), "pods to go when there is nothing to do", 90)
    provisioner.signal(signal.SIGTERM)
    assert provisioner.ends(60) == 0
    print(f"\nkill -9 of the provisioner, three times: 200 of 200 tasks done, {len(seen)} pods in all, "
          f"at most {most} at once (maximum 4), 0 left")  # fmt: skip
    assert most <= 4


def test_nothing_is_left_when_the_program_is_killed(lab, scripts):
    program = scripts.start(
        f"""
        import scaler, time
        cluster = scaler.Cluster("kubernetes", minimum=2, list_interval=0.5, image="{IMAGE}", tag="orphan")
        cluster.wait_for_workers(2, 120)
        print("there", flush=True)
        time.sleep(600)
        """
    )
    program.says("there", 150)
    assert phases(lab, "orphan") == {"Running": 2}
    began = time.monotonic()
    program.signal(signal.SIGKILL)
    until(lambda: not lab.pods(), "the pods to be gone", 60)
    print(f"\nkill -9 of the program: its pods were gone after {time.monotonic() - began:.1f} s")
    with contextlib.suppress(ProcessLookupError):
        os.kill(program.pid, 0)


def test_who_provides_runs_in_a_pod_with_a_service_account(lab, daemons):
    """As the page says: a role with these rights and no others."""
    daemons.start_scheduler()
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "list", "patch", "delete"]},
    ]
    about = {"metadata": {"name": "provider", "namespace": "default"}}
    rights = "rbac.authorization.k8s.io"
    config = (
        f'address = "{daemons.address}"\nprovider = "kubernetes"\ntag = "inside"\nmaximum = 2\nworkers = 1\n'
        f'idle_time = 2.0\nlist_interval = 0.5\n[options]\nimage = "{IMAGE}"\n'
    )
    items = [
        {"apiVersion": "v1", "kind": "ServiceAccount", **about},
        {"apiVersion": f"{rights}/v1", "kind": "Role", **about, "rules": rules},
        {
            "apiVersion": f"{rights}/v1", "kind": "RoleBinding", **about,
            "roleRef": {"apiGroup": rights, "kind": "Role", "name": "provider"},
            "subjects": [{"kind": "ServiceAccount", "name": "provider", "namespace": "default"}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", **about, "data": {"pods.toml": config}},
        {
            "apiVersion": "v1", "kind": "Secret", **about,
            "stringData": {"key": load_or_create().to_env()["SCALER_KEY"]},
        },
    ]  # fmt: skip
    lab.apply({"items": items})
    account = f"{KINDS['ServiceAccount'].format('default')}/provider"
    until(lambda: lab.get(account).get("secrets"), "a token for the account", 60)
    key = {"name": "SCALER_KEY", "valueFrom": {"secretKeyRef": {"name": "provider", "key": "key"}}}
    container = {
        "name": "provider", "image": IMAGE, "command": ["scaler_provision", "/run/lab/pods.toml"], "env": [key],
        "volumeMounts": [{"name": "config", "mountPath": "/run/lab"}],
    }  # fmt: skip
    spec = {
        "serviceAccountName": "provider", "containers": [container], "restartPolicy": "Never",
        "volumes": [{"name": "config", "configMap": {"name": "provider"}}],
    }  # fmt: skip
    lab.apply({"apiVersion": "v1", "kind": "Pod", **about, "spec": spec})
    work = working()
    client = daemons.client()
    futures = [client.submit(work, n, 0.2) for n in range(20)]
    assert [future.result(120) for future in futures] == list(range(20)), lab.said("provider")
    until(lambda: list(lab.pods()) == ["provider"], "pods to go when there is nothing to do", 60)
    until(lambda: not lab.left("Secret", "scaler-tag=inside"), "their key to go with them", 60)
    for item in (*items, {"kind": "Pod"}):
        lab.delete(item["kind"], "provider")
    print("\nfrom a pod with a service account: 20 of 20 tasks done, 0 left")
