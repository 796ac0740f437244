"""A Kubernetes on this machine: real servers, stand-ins for what would be on nodes, all in a network of its own.

    etcd -- kube-apiserver -- kube-scheduler, kube-controller-manager
                 |
                 +-- two kubelets (kubelet.py) -- pods (pods.py, container.py), each behind a wire of a bridge
                 +-- addresses and names of services (services.py)

The thread that makes a `Lab` moves into that network, and so is every thread and process that it starts from then on a
process on a node; no packet of it leaves the machine. All of it ends with the test's process, however that ends.
"""

import base64
import ctypes
import json
import os
import secrets
import shlex
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import install
from container import BRIDGE, GATEWAY
from support.programs import ROOT, environment, program
from support.waiting import until

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

PODS, SERVICES, SERVER = "10.88.0.0/16", "10.96.0.0/16", "10.96.0.1"
NODES = ("n1", "n2")
PORT = 6443
#: where all that manifests make is found again
KINDS = {
    "Pod": "/api/v1/namespaces/{}/pods", "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services", "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments", "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}  # fmt: skip

CERTIFICATE = """\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = kubernetes
[extensions]
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyEncipherment, keyCertSign
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, IP:{gateway}, IP:{server}, DNS:kubernetes, DNS:kubernetes.default.svc
"""


class Lab:
    """See the module. For the main thread of the tests."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._token = secrets.token_hex(16)
        self.url = f"https://{GATEWAY}:{PORT}"
        #: a directory that pods see as well
        self.shared = place / "shared"
        #: for kubectl, kr8s and the servers
        self.kubeconfig = place / "kubeconfig"
        try:
            _check(_libc.unshare(_CLONE_NEWNET))
            self._wire()
            self._trust()
            self._image()
            self._start_servers()
            self._start_nodes()
        except BaseException:
            self.close()
            raise

    # ---- how it comes ------------------------------------------------------------------------------------------
    def _wire(self) -> None:
        for line in (
            "link set lo up", f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up",
            f"address add {GATEWAY}/16 dev {BRIDGE}",
            # the way out that a machine has; nothing is there
            f"route add default via 10.88.255.254 dev {BRIDGE}",
            # all addresses of services are this machine's own
            f"route add local {SERVICES} dev lo",
        ):  # fmt: skip
            subprocess.run(["ip", *line.split()], check=True)

    def _trust(self) -> None:
        said = self.place / "certificate.conf"
        said.write_text(CERTIFICATE.format(gateway=GATEWAY, server=SERVER))
        self._certificate, self._key = self.place / "server.crt", self.place / "server.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7", "-config", str(said),
             "-keyout", str(self._key), "-out", str(self._certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        (self.place / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        trusted = base64.b64encode(self._certificate.read_bytes()).decode()
        server = {"server": self.url, "certificate-authority-data": trusted}
        self.kubeconfig.write_text(
            json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "lab",
                "clusters": [{"name": "lab", "cluster": server}],
                "users": [{"name": "admin", "user": {"token": self._token}}],
                "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
            })
        )  # fmt: skip
        trust = ssl.create_default_context(cafile=self._certificate)
        said = {"Authorization": f"Bearer {self._token}"}
        self._api = httpx.Client(base_url=self.url, verify=trust, headers=said, timeout=30.0, trust_env=False)

    def _image(self) -> None:
        """What containers have in their PATH: the engine's programs, and Python."""
        tools = self.place / "image"
        tools.mkdir()
        self.shared.mkdir()
        modules = {"scaler_cluster": "cluster", "scaler_scheduler": "scheduler", "scaler_ui": "ui",
                   "scaler_provision": "provision"}  # fmt: skip
        for name, module in modules.items():
            self._tool(name, f"PYTHONPATH={ROOT} PYTHONUNBUFFERED=1 exec {shlex.join(program(name, module))}")
        self._tool("python", f"exec {sys.executable}")
        (self.place / "hosts").write_text("127.0.0.1 localhost\n")

    def _tool(self, name: str, command: str) -> None:
        path = self.place / "image" / name
        path.write_text(f'#!/bin/sh\n{command} "$@"\n')
        path.chmod(0o755)

    def _start_servers(self) -> None:
        data = self.place / "etcd"
        self._start(
            "etcd", str(install.BIN / "etcd"), "--data-dir", str(data), "--unsafe-no-fsync",
            "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
            "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn",
        )  # fmt: skip
        key, certificate = str(self._key), str(self._certificate)
        self._start(
            "kube-apiserver", str(install.BIN / "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={GATEWAY}", f"--advertise-address={GATEWAY}", f"--secure-port={PORT}",
            f"--service-cluster-ip-range={SERVICES}", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
            f"--token-auth-file={self.place / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={certificate}",
            f"--service-account-signing-key-file={key}", f"--cert-dir={self.place}", "--allow-privileged=true",
        )  # fmt: skip
        until(self._is_ready, "the API server", 60)
        config = str(self.kubeconfig)
        for name, *options in (
            ("kube-scheduler", "--bind-address=127.0.0.1"),
            ("kube-controller-manager", "--bind-address=127.0.0.1", f"--service-account-private-key-file={key}",
             f"--root-ca-file={certificate}", "--node-monitor-grace-period=60s"),
        ):  # fmt: skip
            self._start(
                name, str(install.BIN / name), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", "--leader-elect=false", f"--cert-dir={self.place}", *options,
            )  # fmt: skip

    def _is_ready(self) -> bool:
        assert self._running["kube-apiserver"].poll() is None, self.log("kube-apiserver")[-3000:]
        try:
            return self._api.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def _start_nodes(self) -> None:
        beside = Path(__file__).parent
        more = {"SERVER": self.url, "CA": str(self._certificate), "TOKEN": self._token}
        self._start("services", sys.executable, str(beside / "services.py"), str(self.place / "hosts"), **more)
        for number, name in enumerate(NODES, 1):
            self._start(name, sys.executable, str(beside / "kubelet.py"), name, str(number), str(self.place), **more)
        until(self._are_nodes_ready, "nodes that take pods", 60)
        accounts = KINDS["ServiceAccount"].format("default")
        until(lambda: self._api.get(f"{accounts}/default").json().get("secrets"), "the default service account", 60)

    def _are_nodes_ready(self) -> bool:
        nodes = self.get("/api/v1/nodes")["items"]
        return len(nodes) == len(NODES) and not any(node["spec"].get("taints") for node in nodes)

    def _start(self, name: str, *command: str, **more: str) -> None:
        with (self.place / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(**more), preexec_fn=_die_too
            )

    # ---- what tests do with it ---------------------------------------------------------------------------------
    def log(self, name: str) -> str:
        """What a server or a kubelet has printed."""
        return (self.place / f"{name}.log").read_text(errors="replace")

    def said(self, pod: str) -> str:
        """What the container of a pod with this name has printed."""
        return "".join(path.read_text(errors="replace") for path in self.place.glob(f"n?/{pod}-*/log"))

    def get(self, path: str) -> dict:
        """What the API server has there. Raises `httpx.HTTPStatusError`."""
        return self._api.get(path).raise_for_status().json()

    def pods(self, selector: str = "") -> dict[str, dict]:
        """Pods by their names."""
        found = self._api.get("/api/v1/namespaces/default/pods", params={"labelSelector": selector} if selector else {})
        return {pod["metadata"]["name"]: pod for pod in found.raise_for_status().json()["items"]}

    def apply(self, manifest: dict) -> None:
        """Make what is in a manifest, as `kubectl create` does."""
        for item in manifest.get("items", [manifest]):
            path = KINDS[item["kind"]].format(item["metadata"].get("namespace", "default"))
            answer = self._api.post(path, json=item)
            assert answer.status_code == 201, answer.text

    def change(self, kind: str, name: str, patch: dict) -> None:
        """Merge this into something."""
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self._api.patch(f"{KINDS[kind].format('default')}/{name}", content=json.dumps(patch), headers=headers)
        answer.raise_for_status()

    def delete(self, kind: str, name: str) -> None:
        """Delete something, as `kubectl delete` does."""
        body = {"propagationPolicy": "Background"}
        self._api.request("DELETE", f"{KINDS[kind].format('default')}/{name}", json=body).raise_for_status()

    def kubectl(self, *arguments: str, said: str = "") -> str:
        """What kubectl of the same version prints."""
        command = [str(install.BIN / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self, pod: str) -> list[int]:
        """The processes of this machine that a pod has, its first one first."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if f"HOSTNAME={pod}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
        return sorted(found)

    def check(self) -> None:
        """Fail if pods, or what they are made from, are left."""
        try:
            until(lambda: not self.pods(), "all pods to be gone", 60)
            for kind in ("Deployment", "Service", "Secret", "ConfigMap", "Role", "RoleBinding"):
                until(lambda: not self.left(kind, "scaler-tag"), f"what is left behind: {kind}", 60)  # noqa: B023
        except AssertionError:
            for kind in ("Deployment", "Pod"):
                self._api.request("DELETE", KINDS[kind].format("default"), json={"gracePeriodSeconds": 0})
            raise

    def left(self, kind: str, selector: str) -> list[str]:
        """Names of what there is of a kind."""
        path = KINDS[kind].format("default")
        found = self._api.get(path, params={"labelSelector": selector}).raise_for_status().json()
        return [item["metadata"]["name"] for item in found["items"]]

    def close(self) -> None:
        """End all of it, and leave its network."""
        for name, sent in [("n", signal.SIGTERM), ("", signal.SIGTERM)]:
            those = [process for key, process in self._running.items() if key.startswith(name) or not name]
            for process in those:
                if process.poll() is None:
                    process.send_signal(sent)
            for process in those:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if hasattr(self, "_api"):
            self._api.close()
        _check(_libc.setns(self._outside, _CLONE_NEWNET))
        os.close(self._outside)


def _die_too() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
