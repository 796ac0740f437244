"""Hosts from Kubernetes: a pod for each, by `kr8s` (the extra `kubernetes`).

Pods have the tag as a label, and names that follow from the request: the same request again makes no second one.
Those that have ended stay in Kubernetes' lists until somebody deletes them, which is done here: at once, or after
`KEPT` seconds if they failed, since their log tells why.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from scaler.config import LONGEST_LOOK, OptionError
from scaler.provisioning import kubernetes_key
from scaler.provisioning.manifests import REQUEST, TAG, PodOptions, agent_pod
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError, WrongRequest, WrongSetup
from scaler.provisioning.registry import Known, take
from scaler.transport.security import KEY_FILE_VARIABLE, KEY_VARIABLE

logger = logging.getLogger("scaler.provision")

#: seconds for which a pod that failed can be looked at
KEPT = 600.0
#: HTTP statuses of a server that knows who asks, or does not, and lets them do nothing
_NOT_ALLOWED = (401, 403)
#: of a new pod: it is none, or there is no such namespace
_NEVER = (400, 404, 422)

OPTIONS: dict[str, Known] = {
    "image": (str, ""), "namespace": (str, "default"), "cpu": (str, ""), "memory": (str, ""),
    "key_secret": (str, ""), "pull_secret": (str, ""), "service_account": (str, ""),
    "grace": (int, 30, 0, LONGEST_LOOK), "program": (str, "scaler_cluster"), "kubeconfig": (str, ""), "url": (str, ""),
}  # fmt: skip

Jobs = list[Job]


def make(options: dict[str, Any]) -> KubernetesProvider:
    """A provider from the options of a configuration file. Raises `OptionError`, ImportError without kr8s."""
    return KubernetesProvider(take(options, OPTIONS, "kubernetes"))


class KubernetesProvider:
    """See the module. The job's id is the pod's name."""

    def __init__(self, options: dict[str, Any]) -> None:
        if not options["image"]:
            raise OptionError("image", "is needed: one that has this package, and what tasks import")
        try:
            import kr8s
            import kr8s.objects
        except ImportError as error:
            raise ImportError("hosts from Kubernetes need kr8s: pip install 'scaler[kubernetes]'") from error
        self._kr8s = kr8s
        self._options = options
        self._pod_options = PodOptions(
            options["image"], options["namespace"], options["cpu"], options["memory"],
            options["key_secret"], options["pull_secret"], options["service_account"],
        )  # fmt: skip
        self._api: Any = None
        self._keys = kubernetes_key.PodKeys(kr8s.objects, self._connected, self._unless)
        #: pods that have ended and are not deleted yet -> when that was seen, by the monotonic clock
        self._ended: dict[str, float] = {}

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """Make pods; those of this request that are there already count."""
        made: list[dict[str, Any]] = []
        namespace, is_key_made = self._options["namespace"], False
        try:
            with self._words():
                if self._makes_key(template):
                    key = kubernetes_key.key_of(template.environment)
                    self._keys.make(template, namespace, key)
                    is_key_made = True
                made.extend(self._made(pod) for pod in self._pods(n, template))
        except ProviderError as error:
            if not made and self._status_of(error.__cause__) in _NEVER:
                raise WrongRequest(str(error)) from error.__cause__
            if not made or not self._is_refusal(error.__cause__):
                raise  # it may have been made: lists will tell
        finally:
            if is_key_made:
                with self._words():
                    self._keys.give(kubernetes_key.name_of(template), namespace, made)
        return [pod["metadata"]["name"] for pod in made]

    def _made(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """A new pod as the server knows it, or the one that has its name."""
        pod = self._kr8s.objects.Pod(manifest, api=self._connected())
        with self._unless(409):
            pod.create()
        if "uid" not in pod.raw["metadata"]:
            pod.refresh()
        return dict(pod.raw)

    def list(self, tag: str) -> Jobs:
        """The pods with that tag, until they are deleted."""
        namespace = self._options["namespace"]
        with self._words():
            found = self._connected().get("pods", namespace=namespace, label_selector={TAG: tag})
            pods = [dict(pod.raw) for pod in found if REQUEST in pod.labels]
            if not self._options["key_secret"]:
                self._keys.look_after(tag, namespace, pods)
        jobs = [job_of(pod) for pod in pods]
        self._remove_ended(jobs)
        return jobs

    def _remove_ended(self, jobs: Jobs) -> None:
        """Delete what has ended, in time."""
        now = time.monotonic()
        ended = {job.id: job for job in jobs if job.state is JobState.ENDED}
        self._ended = {name: self._ended.get(name, now) for name in ended}
        over = [name for name, job in ended.items() if not job.reason or now - self._ended[name] >= KEPT]
        with contextlib.suppress(ProviderError):
            self.cancel(over)

    def close(self) -> None:
        """This provider is done with: pods that have failed need no longer be kept."""
        self.cancel(list(self._ended))
        self._ended.clear()

    def cancel(self, ids: Sequence[str]) -> None:
        """Delete pods; agents have `grace` seconds to end in order."""
        namespace = self._options["namespace"]
        with self._words():
            for name in ids:
                stub = {"metadata": {"name": name, "namespace": namespace}}
                with self._unless(404), contextlib.suppress(self._kr8s.NotFoundError):
                    self._kr8s.objects.Pod(stub, api=self._connected()).delete()

    def describe(self) -> str:
        """The server's version, and where pods go."""
        with self._words():
            version = self._connected().version()
        return f"Kubernetes {version.get('gitVersion', '?')}, namespace {self._options['namespace']}"

    def preview(self, n: int, template: HostTemplate) -> str:
        """The pods as they are made."""
        items = list(self._pods(n, template))
        if self._makes_key(template):
            items.insert(0, kubernetes_key.secret(template, self._options["namespace"], "(the key pair)"))
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2)

    def _makes_key(self, template: HostTemplate) -> bool:
        """Pods need a key, and nobody has named a Secret that has it."""
        is_needed = KEY_VARIABLE in template.environment or KEY_FILE_VARIABLE in template.environment
        return is_needed and not self._options["key_secret"]

    def _pods(self, n: int, template: HostTemplate) -> Iterator[dict[str, Any]]:
        secrets = (KEY_VARIABLE, KEY_FILE_VARIABLE)  # pods have a Secret instead
        environment = {name: value for name, value in template.environment.items() if name not in secrets}
        options = self._pod_options
        if self._makes_key(template):
            options = replace(options, key_secret=kubernetes_key.name_of(template))
        for index in range(n):
            name = f"{template.job_name}-{index}"
            command = [self._options["program"], *template.command[1:], "--job", name]
            yield agent_pod(
                options, name, template.tag, template.request, command, environment, self._options["grace"],
                template.walltime,
            )  # fmt: skip

    def _connected(self) -> Any:
        if self._api is None:
            said = {name: self._options[name] for name in ("url", "kubeconfig") if self._options[name]}
            with warnings.catch_warnings(record=True) as warned:
                self._api = self._kr8s.api(namespace=self._options["namespace"], **said)
            for each in warned:
                logger.warning("kr8s: %s", each.message)
        return self._api

    def _is_refusal(self, error: BaseException | None) -> bool:
        """The server did not do what it was asked for, and said so."""
        return 0 < self._status_of(error) < 500

    def _status_of(self, error: BaseException | None) -> int:
        """The HTTP status that the server answered with; 0 if it did not."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        return status if isinstance(error, self._kr8s.ServerError) and isinstance(status, int) else 0

    @contextlib.contextmanager
    def _words(self) -> Iterator[None]:
        """What goes wrong inside is a `ProviderError` in the server's words."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            # credentials that cannot be found are a ValueError of kr8s
            is_wrong = isinstance(error, ValueError) or self._status_of(error) in _NOT_ALLOWED
            raise (WrongSetup if is_wrong else ProviderError)(f"Kubernetes: {words[:300]}") from error

    @contextlib.contextmanager
    def _unless(self, status: int) -> Iterator[None]:
        """An answer with this HTTP status is no error."""
        try:
            yield
        except self._kr8s.ServerError as error:
            if getattr(error.response, "status_code", None) != status:
                raise


def job_of(pod: dict[str, Any]) -> Job:
    """A pod as a job, with the reason in Kubernetes' words."""
    metadata, status, spec = pod["metadata"], pod.get("status", {}), pod.get("spec", {})
    labels = metadata.get("labels", {})
    states = [container.get("state", {}) for container in status.get("containerStatuses", [])]
    phase, reason = status.get("phase", "Pending"), ""
    if phase in ("Succeeded", "Failed"):
        state = JobState.ENDED
        ends = [found["terminated"] for found in states if "terminated" in found]
        if phase == "Failed":
            reason = _said(status) or next((_said(end) or f"exit code {end.get('exitCode')}" for end in ends), "Failed")
    elif phase == "Running":
        state = JobState.RUNNING
    else:
        state = JobState.PENDING
        waits = [_said(found["waiting"]) for found in states if "waiting" in found]
        unmet = [
            _said(found) for found in status.get("conditions", [])
            if found.get("type") == "PodScheduled" and found.get("status") == "False"
        ]  # fmt: skip
        reason = next(iter([*waits, *unmet]), "")
    name = f"{labels.get(TAG, '')}-{labels.get(REQUEST, '')}"
    return Job(metadata["name"], name, state, spec.get("nodeName", ""), reason)


def _said(facts: dict[str, Any]) -> str:
    return ": ".join(str(facts[name]).strip() for name in ("reason", "message") if facts.get(name))
