"""The key pair for pods that a provider makes: a Secret for each request, which goes with the last of its pods.

It is made before the pods, as they begin with it, and belongs to them afterwards: Kubernetes itself removes it when all
of them are gone, whoever deletes them. One that was made by a provisioner that died before that is looked after by the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from scaler.provisioning.manifests import KEY_NAME, REQUEST, ROLE, TAG
from scaler.provisioning.provider import HostTemplate
from scaler.transport import security_of
from scaler.transport.security import KEY_FILE_VARIABLE, KEY_VARIABLE

Manifest = dict[str, Any]


def key_of(environment: Mapping[str, str]) -> str:
    """The pair that hosts are to have, as `SCALER_KEY` says it; empty if they need none."""
    if KEY_VARIABLE in environment:
        return environment[KEY_VARIABLE]
    if KEY_FILE_VARIABLE in environment:
        return security_of(environment[KEY_FILE_VARIABLE], False).to_env()[KEY_VARIABLE]
    return ""


def name_of(template: HostTemplate) -> str:
    """What the Secret of a request is called."""
    return f"{template.job_name}-key"


def secret(template: HostTemplate, namespace: str, key: str) -> Manifest:
    """The Secret of a request."""
    labels = {TAG: template.tag, REQUEST: str(template.request), ROLE: "key"}
    metadata = {"name": name_of(template), "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": {KEY_NAME: key}}


class PodKeys:
    """The Secrets of one provider. `unless(status)` is a context in which an answer with that status is no error."""

    def __init__(
        self, objects: Any, connected: Callable[[], Any], unless: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        self._objects, self._connected, self._unless = objects, connected, unless
        #: tags of which it is known that all of their Secrets belong to pods
        self._looked_after: set[str] = set()

    def make(self, template: HostTemplate, namespace: str, key: str) -> None:
        """Make the Secret, unless the same request made it before."""
        with self._unless(409):
            self._objects.Secret(secret(template, namespace, key), api=self._connected()).create()

    def give(self, name: str, namespace: str, pods: Sequence[Manifest]) -> None:
        """It belongs to these pods from now on; without any it goes."""
        stub = {"metadata": {"name": name, "namespace": namespace}}
        found = self._objects.Secret(stub, api=self._connected())
        with self._unless(404):
            if not pods:
                found.delete()
                return
            owners = [
                {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                for pod in pods
            ]
            found.patch({"metadata": {"ownerReferences": owners}})

    def look_after(self, tag: str, namespace: str, pods: Sequence[Manifest]) -> None:
        """Once for each tag: give Secrets that a provisioner left without an owner to the pods of their requests."""
        if tag in self._looked_after:
            return
        for found in self._connected().get("secrets", namespace=namespace, label_selector={TAG: tag}):
            labels, metadata = found.labels, found.raw["metadata"]
            if REQUEST in labels and not metadata.get("ownerReferences"):
                of_request = [pod for pod in pods if pod["metadata"]["labels"].get(REQUEST) == labels[REQUEST]]
                self.give(metadata["name"], namespace, of_request)
        self._looked_after.add(tag)
