"""Hosts from Kubernetes, against a server that takes what the recorded schema of Kubernetes 1.20.2 allows."""

import http.server
import json
import re
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("kr8s")

from click.testing import CliRunner
from support.kubernetes_schema import problems

from scaler.cli.kubernetes import command
from scaler.config import OptionError
from scaler.provisioning.kubernetes import job_of
from scaler.provisioning.manifests import PodOptions, agent_pod
from scaler.provisioning.provider import HostTemplate, JobState, ProviderError, WrongRequest, WrongSetup
from scaler.provisioning.registry import make_provider
from scaler.transport import load_or_create

ALIVE = ["--alive-file", "/tmp/scaler-alive"]
PATH = re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/(pods|secrets)(?:/([a-z0-9.-]+))?$")
KINDS = {"pods": "Pod", "secrets": "Secret"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?$")


class Server(http.server.ThreadingHTTPServer):
    """The part of an API server that pods need."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pods = {}
        self.secrets = {}
        self.refuses = None
        self.status = 403
        #: pods that there may be; how it says that there are no more of them: a word, or None for no answer
        self.room = 1000
        self.says = None
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, status, reason, message):
        kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self._answer({**kind, "message": message, "reason": reason, "code": status}, status)

    def _found(self):
        """Which table, namespace and name a request is about."""
        space, kind, name = PATH.match(urlsplit(self.path).path.rstrip("/")).groups()
        return {"pods": self.server.pods, "secrets": self.server.secrets}[kind], KINDS[kind], space, name

    def do_GET(self):
        parts = urlsplit(self.path)
        parts = parts._replace(path=parts.path.rstrip("/"))
        if parts.path == "/version":
            return self._answer({"major": "1", "minor": "33", "gitVersion": "v1.33.1"})
        if parts.path == "/api/v1":
            pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "shortNames": ["po"]}
            secrets = {**pods, "name": "secrets", "singularName": "secret", "kind": "Secret", "shortNames": []}
            verbs = {"verbs": ["create", "delete", "get", "list", "patch"]}
            known = [{**pods, **verbs}, {**secrets, **verbs}]
            return self._answer({"kind": "APIResourceList", "groupVersion": "v1", "resources": known})
        if parts.path == "/api":
            return self._answer({"kind": "APIVersions", "versions": ["v1"]})
        if parts.path == "/apis":
            return self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        if not PATH.match(parts.path):
            return self._fail(404, "NotFound", f"the server could not find {parts.path}")
        table, kind, space, name = self._found()
        if name is None:
            selector = parse_qs(parts.query).get("labelSelector", [""])[0]
            wanted = dict(part.split("=") for part in selector.split(",") if part)
            items = [
                item for (namespace, _), item in table.items()
                if namespace == space and wanted.items() <= item["metadata"]["labels"].items()
            ]  # fmt: skip
            return self._answer({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items})
        if (space, name) in table:
            return self._answer(table[space, name])
        return self._fail(404, "NotFound", f"the server could not find {parts.path}")

    def do_POST(self):
        item = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (table, kind, space, _), name = self._found(), item["metadata"]["name"]
        if self.server.refuses:
            return self._fail(self.server.status, "Refused", self.server.refuses)
        assert (item["apiVersion"], item["kind"], item["metadata"]["namespace"]) == ("v1", kind, space)
        assert NAME.match(name)
        wrong = problems(item)
        if wrong:
            return self._fail(422, "Invalid", "; ".join(wrong))
        if (space, name) in table:
            return self._fail(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if kind == "Pod" and len(table) >= self.server.room:
            if self.server.says is None:
                self.close_connection = True
                return None
            return self._fail(403, "Forbidden", self.server.says)
        item["metadata"]["uid"] = f"uid-{name}"
        item["status"] = {"phase": "Pending"}
        table[space, name] = item
        return self._answer(item, 201)

    def do_PATCH(self):
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        table, _, space, name = self._found()
        if (space, name) not in table:
            return self._fail(404, "NotFound", f"{name} not found")
        table[space, name]["metadata"] |= patch["metadata"]
        return self._answer(table[space, name])

    def do_DELETE(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        table, _, space, name = self._found()
        item = table.pop((space, name), None)
        if item is None:
            return self._fail(404, "NotFound", f'"{name}" not found')
        return self._answer(item)


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


#: what the provisioner says of keys
ENVIRONMENT = {"SCALER_KEY_FILE": "/home/me/key"}


def template(request=1, **more):
    environment = dict(ENVIRONMENT)
    command = ("/here/bin/scaler_cluster", "tcp://head:2345", "--workers", "2")
    return HostTemplate("lab", request, command, environment=environment, workers=2, **more)


def provider_of(server, **more):
    return make_provider("kubernetes", {"image": "lab:1", "namespace": "work", "url": server.url} | more)


def test_pods_come_are_found_and_go(server):
    provider = provider_of(server, cpu="2", memory="1Gi", key_secret="lab-key")
    assert provider.describe() == "Kubernetes v1.33.1, namespace work"
    assert provider.list("lab") == []
    assert provider.submit(2, template(walltime=60.0)) == ["lab-1-0", "lab-1-1"]
    pod = server.pods["work", "lab-1-0"]
    assert pod["metadata"]["labels"] == {"scaler-tag": "lab", "scaler-request": "1", "scaler-role": "agent"}
    assert pod["spec"]["activeDeadlineSeconds"] == 60
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["scaler_cluster", "tcp://head:2345", "--workers", "2", "--job", "lab-1-0", *ALIVE]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert container["env"] == [
        {"name": "SCALER_KEY", "valueFrom": {"secretKeyRef": {"name": "lab-key", "key": "key"}}}
    ]
    # the same request once more, as after a crash: no second pods
    assert provider_of(server, key_secret="lab-key").submit(2, template()) == ["lab-1-0", "lab-1-1"]
    assert (len(server.pods), server.secrets) == (2, {})
    pod["status"] = {"phase": "Running"}
    pod["spec"]["nodeName"] = "node7"
    provider.submit(1, template(request=2))
    jobs = {job.id: job for job in provider.list("lab")}
    assert sorted(jobs) == ["lab-1-0", "lab-1-1", "lab-2-0"]
    assert (jobs["lab-1-0"].state, jobs["lab-1-0"].host) == (JobState.RUNNING, "node7")
    assert (jobs["lab-1-1"].state, jobs["lab-1-1"].name) == (JobState.PENDING, "lab-1")
    assert provider.list("la") == []
    provider.cancel(["lab-1-0", "lab-1-1", "gone"])
    assert [job.id for job in provider.list("lab")] == ["lab-2-0"]


def test_pods_without_a_named_secret_have_one_that_is_theirs(server, monkeypatch):
    made = load_or_create()
    monkeypatch.setitem(ENVIRONMENT, "SCALER_KEY_FILE", str(made.origin))
    provider = provider_of(server)
    assert provider.submit(2, template()) == ["lab-1-0", "lab-1-1"]
    secret = server.secrets["work", "lab-1-key"]
    assert secret["stringData"] == {"key": made.to_env()["SCALER_KEY"]}
    owners = [(owner["kind"], owner["name"], owner["uid"]) for owner in secret["metadata"]["ownerReferences"]]
    assert owners == [("Pod", name, f"uid-{name}") for name in ("lab-1-0", "lab-1-1")]
    (variable,) = server.pods["work", "lab-1-0"]["spec"]["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "lab-1-key", "key": "key"}
    assert made.to_env()["SCALER_KEY"] not in provider.preview(1, template())
    # one whose maker was killed before its pods were made goes, and that of another cluster stays
    for tag in ("lab", "other"):
        metadata = {"name": f"{tag}-7-key", "labels": {"scaler-tag": tag, "scaler-request": "7"}}
        server.secrets["work", f"{tag}-7-key"] = {"kind": "Secret", "metadata": metadata}
    assert [job.id for job in provider_of(server).list("lab")] == ["lab-1-0", "lab-1-1"]
    assert sorted(server.secrets) == [("work", "lab-1-key"), ("work", "other-7-key")]
    # one whose maker was killed after that is given to them
    del secret["metadata"]["ownerReferences"]
    provider_of(server).list("lab")
    assert len(secret["metadata"]["ownerReferences"]) == 2


def test_pods_that_have_ended_are_deleted(server):
    provider = provider_of(server, key_secret="lab-key")
    names = provider.submit(3, template())
    for name, status in zip(names, ({"phase": "Running"}, {"phase": "Succeeded"}, {"phase": "Failed"}), strict=True):
        server.pods["work", name]["status"] = status
    assert [job.state for job in provider.list("lab")] == [JobState.RUNNING, JobState.ENDED, JobState.ENDED]
    # what failed is there to be looked at for a while, and until nobody provides hosts any more
    assert [name for _, name in server.pods] == ["lab-1-0", "lab-1-2"]
    provider.list("lab")
    provider.close()
    assert [name for _, name in server.pods] == ["lab-1-0"]


def test_what_the_server_refuses_is_said_in_its_words(server):
    server.refuses = 'pods is forbidden: User "me" cannot create resource "pods" in namespace "work"'
    with pytest.raises(ProviderError, match=r'^Kubernetes: .*User "me" cannot create resource "pods"'):
        provider_of(server, key_secret="lab-key").submit(1, template())
    with pytest.raises(OptionError, match="image is needed"):
        make_provider("kubernetes", {})


def test_a_server_that_is_not_there_may_come_and_one_that_does_not_know_who_asks_is_a_wrong_setup(server, tmp_path):
    with pytest.raises(ProviderError, match=r"^Kubernetes: ") as away:
        provider_of(server, url="http://127.0.0.1:1").describe()
    assert not isinstance(away.value, WrongSetup)
    server.refuses = "who are you"
    with pytest.raises(WrongSetup, match="who are you"):
        provider_of(server, key_secret="lab-key").submit(1, template())
    with pytest.raises(WrongSetup, match="credentials"):
        provider_of(server, url="", kubeconfig=str(tmp_path / "none")).describe()


def test_a_pod_that_will_never_be_taken_is_told_from_one_that_there_is_no_room_for(server):
    server.refuses, server.status = 'Pod "lab-1-0" is invalid: spec.containers[0].image: Invalid value', 422
    with pytest.raises(WrongRequest, match=r"^Kubernetes: .*is invalid"):
        provider_of(server, key_secret="lab-key").submit(1, template())
    server.refuses, server.room, server.says = None, 0, "exceeded quota"
    with pytest.raises(ProviderError) as full:
        provider_of(server).submit(1, template())
    assert not isinstance(full.value, WrongRequest)


def test_pods_that_were_refused_are_left_out_and_one_without_an_answer_puts_the_request_in_doubt(server):
    server.room, server.says = 2, "exceeded quota"
    assert provider_of(server).submit(3, template()) == ["lab-1-0", "lab-1-1"]
    server.room, server.says = 3, None
    with pytest.raises(ProviderError, match=r"^Kubernetes: "):
        provider_of(server).submit(2, template(2))
    assert len(server.pods) == 3


def test_what_is_not_in_the_schema_is_refused():
    good = agent_pod(PodOptions("lab:1", cpu="2", memory="1Gi"), "lab-1-0", "lab", 1, ["x"], {"A": "b"}, 30, 60.0)
    assert problems(good) == []
    bad = json.loads(json.dumps(good).replace("periodSeconds", "period"))
    bad["spec"]["activeDeadlineSeconds"] = "60"
    del bad["spec"]["containers"][0]["name"]
    assert sorted(problems(bad)) == [
        "Pod.spec.activeDeadlineSeconds is '60', not of type integer",
        "Pod.spec.containers[0].livenessProbe.period is not known", "Pod.spec.containers[0].name is missing",
        "Pod.spec.containers[0].readinessProbe.period is not known",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ({"phase": "Pending"}, JobState.PENDING, ""),
        (
            {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": "0/3 nodes are available: 3 Insufficient cpu."}]},
            JobState.PENDING, "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            {"phase": "Pending", "containerStatuses": [
                {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "lab:1"'}}}]},
            JobState.PENDING, 'ImagePullBackOff: Back-off pulling image "lab:1"',
        ),
        ({"phase": "Running"}, JobState.RUNNING, ""),
        ({"phase": "Succeeded"}, JobState.ENDED, ""),
        (
            {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
            JobState.ENDED, "OOMKilled",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            JobState.ENDED, "Evicted: The node was low on resource: memory.",
        ),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, JobState.ENDED, "DeadlineExceeded"),
    ],
)  # fmt: skip
def test_phases_and_reasons_of_pods(status, state, reason):
    labels = {"scaler-tag": "lab", "scaler-request": "3"}
    job = job_of({"metadata": {"name": "lab-3-0", "labels": labels}, "status": status})
    assert (job.name, job.state, job.reason) == ("lab-3", state, reason)


def test_the_manifests_of_a_cluster_fit_together(tmp_path):
    key = tmp_path / "key"
    done = CliRunner().invoke(
        command, ["--image", "lab:1", "--tag", "lab", "--agents", "3", "--workers", "2", "--key-file", str(key)],
        standalone_mode=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    items = {(item["kind"], item["metadata"]["name"]): item for item in json.loads(done.output)["items"]}
    assert sorted(items) == [
        ("Deployment", "lab-agent"), ("Deployment", "lab-dashboard"), ("Deployment", "lab-scheduler"),
        ("Secret", "lab-key"), ("Service", "lab-scheduler"),
    ]  # fmt: skip
    secret = items["Secret", "lab-key"]["stringData"]
    (name,) = secret
    service = items["Service", "lab-scheduler"]["spec"]
    for (kind, _), item in items.items():
        assert problems(item) == []
        assert item["metadata"]["labels"]["scaler-tag"] == "lab"
        if kind != "Deployment":
            continue
        spec, pod = item["spec"], item["spec"]["template"]
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "lab-key", "key": name}
    scheduler = items["Deployment", "lab-scheduler"]["spec"]["template"]
    assert service["selector"].items() <= scheduler["metadata"]["labels"].items()
    assert scheduler["spec"]["containers"][0]["livenessProbe"]["tcpSocket"]["port"] == service["ports"][0]["port"]
    dashboard = items["Deployment", "lab-dashboard"]["spec"]["template"]["spec"]["containers"][0]
    assert {"readinessProbe", "livenessProbe"} <= set(dashboard)
    agent = items["Deployment", "lab-agent"]["spec"]
    assert agent["replicas"] == 3
    assert agent["template"]["spec"]["containers"][0]["command"] == [
        "scaler_cluster", "tcp://lab-scheduler:2345", "--workers", "2", *ALIVE
    ]  # fmt: skip
