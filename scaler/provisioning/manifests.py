"""What Kubernetes is told, as plain data: pods of agents, and all that a cluster needs for `kubectl apply -f`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaler.config import OptionError

#: labels of all that belongs to a cluster, and of which request a pod is of
TAG, REQUEST, ROLE = "scaler-tag", "scaler-request", "scaler-role"

#: the variable with the key pair in each container, and its name in the secret
KEY_VARIABLE, KEY_NAME = "SCALER_KEY", "key"
PORT, DASHBOARD_PORT = 2345, 8081
#: the file by which agents say in their containers that they live, and seconds after which an old one says the opposite
ALIVE, STALE = "/tmp/scaler-alive", 60

#: an amount in Kubernetes' words, and what a namespace may be called
_AMOUNT = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class PodOptions:
    """What a container runs in. Raises `OptionError` for what Kubernetes would refuse."""

    image: str
    namespace: str = "default"
    #: of a container, in Kubernetes' words: "1", "500m"; "2Gi"
    cpu: str = ""
    memory: str = ""
    #: names of secrets
    key_secret: str = ""
    pull_secret: str = ""
    service_account: str = ""

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise OptionError(
                "namespace", f"must be at most 63 of the characters a-z, 0-9 and -, not {self.namespace!r}"
            )
        for name, example in (("cpu", "2 or 500m"), ("memory", "4Gi or 500M")):
            amount = getattr(self, name)
            if amount and not _AMOUNT.fullmatch(amount):
                raise OptionError(name, f"must be an amount like {example}, not {amount!r}")


def agent_pod(
    options: PodOptions, name: str, tag: str, request: int, command: Sequence[str], environment: Mapping[str, str],
    grace: int, walltime: float | None = None,
) -> Manifest:  # fmt: skip
    """A pod that is one host. It is not started again: an agent ends when it has no scheduler for long."""
    spec = _spec(options, "agent", [*command, "--alive-file", ALIVE], environment)
    spec["containers"][0] |= _agent_probes()
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace}
    if walltime is not None:
        spec["activeDeadlineSeconds"] = max(1, round(walltime))
    labels = {TAG: tag, REQUEST: str(request), ROLE: "agent"}
    metadata = {"name": name, "namespace": options.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def cluster(options: PodOptions, tag: str, key: str, agents: int, workers: int) -> Manifest:
    """A list with the secret, the scheduler and its service, the dashboard, and so many agents."""
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": _metadata(options, f"{tag}-key", tag, "key"),
        "type": "Opaque", "stringData": {KEY_NAME: key},
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(options, f"{tag}-scheduler", tag, "scheduler"),
        "spec": {
            "selector": {TAG: tag, ROLE: "scheduler"},
            "ports": [{"name": "scaler", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }  # fmt: skip
    address = f"tcp://{tag}-scheduler:{PORT}"
    listens = {"tcpSocket": {"port": PORT}, "periodSeconds": 5}
    # the dashboard listens within its pod alone, where no kubelet reaches it
    connect = f"import socket; socket.create_connection(('127.0.0.1', {DASHBOARD_PORT}), 5)"
    shows = {"exec": {"command": ["python", "-c", connect]}, "periodSeconds": 15, "timeoutSeconds": 6}
    scheduler = _deployment(
        options, tag, "scheduler", 1, ["scaler_scheduler", f"tcp://0.0.0.0:{PORT}"],
        {"ports": [{"name": "scaler", "containerPort": PORT}], "readinessProbe": listens,
         "livenessProbe": {**listens, "failureThreshold": 6}},
    )  # fmt: skip
    dashboard = _deployment(
        options, tag, "dashboard", 1, ["scaler_ui", address, "--port", str(DASHBOARD_PORT), "--wait"],
        {"readinessProbe": shows, "livenessProbe": {**shows, "failureThreshold": 6}},
    )  # fmt: skip
    agent = _deployment(
        options, tag, "agent", agents,
        ["scaler_cluster", address, "--workers", str(workers), "--alive-file", ALIVE], _agent_probes(),
    )  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": [secret, service, scheduler, dashboard, agent]}


def _agent_probes() -> Manifest:
    """An agent is ready while it has a scheduler; one that is stuck is ended, one that waits for a scheduler is not."""
    ready = f"import sys; sys.exit('connected' not in open('{ALIVE}').read())"
    lives = f"import os, sys, time; sys.exit(time.time() - os.stat('{ALIVE}').st_mtime > {STALE})"

    def probe(text: str, period: int, failures: int) -> Manifest:
        command = {"command": ["python", "-SEc", text]}
        return {"exec": command, "periodSeconds": period, "timeoutSeconds": 10, "failureThreshold": failures}

    return {"readinessProbe": probe(ready, 5, 1), "livenessProbe": {**probe(lives, 20, 3), "initialDelaySeconds": 30}}


def _metadata(options: PodOptions, name: str, tag: str, role: str) -> Manifest:
    return {"name": name, "namespace": options.namespace, "labels": {TAG: tag, ROLE: role}}


def _deployment(
    options: PodOptions, tag: str, role: str, replicas: int, command: Sequence[str], more: Manifest
) -> Manifest:
    spec = _spec(options, role, command, {})
    spec["containers"][0] |= more
    labels = {TAG: tag, ROLE: role}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(options, f"{tag}-{role}", tag, role),
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            # two schedulers at once would share the service
            "strategy": {"type": "Recreate" if role == "scheduler" else "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }  # fmt: skip


def _spec(options: PodOptions, role: str, command: Sequence[str], environment: Mapping[str, str]) -> Manifest:
    container: Manifest = {"name": role, "image": options.image, "command": list(command)}
    variables: list[Manifest] = [{"name": name, "value": value} for name, value in environment.items()]
    spec: Manifest = {
        "containers": [container], "automountServiceAccountToken": bool(options.service_account),
        # variables for each service of the namespace: SCALER_PORT, of one called scaler, would be an option of ours
        "enableServiceLinks": False,
    }  # fmt: skip
    if options.key_secret:
        place = {"secretKeyRef": {"name": options.key_secret, "key": KEY_NAME}}
        variables.append({"name": KEY_VARIABLE, "valueFrom": place})
    if variables:
        container["env"] = variables
    if role == "agent":
        wanted = {name: value for name, value in (("cpu", options.cpu), ("memory", options.memory)) if value}
        if wanted:
            # memory is a limit as well, since agents see it and keep below; processors are not
            limits = {"limits": {"memory": options.memory}} if options.memory else {}
            container["resources"] = {"requests": wanted, **limits}
    if options.pull_secret:
        spec["imagePullSecrets"] = [{"name": options.pull_secret}]
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    return spec
