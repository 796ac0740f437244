"""A stand-in for a kubelet: takes the pods of its node from a real API server and runs them as plain processes.

    kubelet.py NAME NUMBER PLACE       with SERVER, CA and TOKEN in the environment

It watches the pods that are bound to its node, keeps its lease, and says what becomes of each. It has one thread, and
what it starts dies with it.
"""

import asyncio
import itertools
import json
import logging
import os
import signal
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from container import GATEWAY
from pods import Manifest, Pod, now

logger = logging.getLogger("kubelet")

#: seconds between two signs of life
BEAT = 5.0
#: what a node has, in Kubernetes' words
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}
PATCH = {"Content-Type": "application/strategic-merge-patch+json"}


class Node:
    """One node, and its pods."""

    def __init__(self, api: httpx.AsyncClient, name: str, number: int, place: Path) -> None:
        self.address = GATEWAY
        #: what containers find in their PATH; the names of services
        self.image, self.hosts = place / "image", place / "hosts"
        self._api, self._name, self._number = api, name, number
        self._place = place / name
        self._pods: dict[str, Pod] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._addresses = itertools.count(2)
        self._cables = itertools.count(1)

    # ---- its own -----------------------------------------------------------------------------------------------
    async def join(self) -> None:
        """Be a node of this cluster."""
        labels = {"kubernetes.io/hostname": self._name, "kubernetes.io/os": "linux"}
        await self._create("/api/v1/nodes", {"kind": "Node", "metadata": {"name": self._name, "labels": labels}})
        await self._patch(f"/api/v1/nodes/{self._name}/status", {"status": self._status()})

    def _status(self) -> Manifest:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        return {
            "capacity": ROOM, "allocatable": ROOM, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": self.address}],
        }  # fmt: skip

    async def beat(self) -> None:
        """Say again and again that it lives."""
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": 40}
        await self._create(leases, {"kind": "Lease", "metadata": {"name": self._name}, "spec": spec})
        while True:
            time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            await self._patch(f"{leases}/{self._name}", {"spec": {"renewTime": time}})
            await self._patch(f"/api/v1/nodes/{self._name}/status", {"status": self._status()})
            await asyncio.sleep(BEAT)

    # ---- its pods ----------------------------------------------------------------------------------------------
    async def watch(self) -> None:
        """Hear of pods for ever."""
        chosen = {"fieldSelector": f"spec.nodeName={self._name}"}
        while True:
            try:
                listed = (await self._api.get("/api/v1/pods", params=chosen)).raise_for_status().json()
                there = {pod["metadata"]["uid"] for pod in listed["items"]}
                for uid in self._pods.keys() - there:
                    self._hear("DELETED", self._pods[uid].manifest)
                for pod in listed["items"]:
                    self._hear("ADDED", pod)
                more = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with self._api.stream("GET", "/api/v1/pods", params=chosen | more, timeout=None) as lines:
                    async for line in lines.aiter_lines():
                        change = json.loads(line)
                        if change["type"] == "ERROR":
                            break
                        self._hear(change["type"], change["object"])
            except httpx.HTTPError as error:
                logger.warning("no news of pods: %s", error)
                await asyncio.sleep(0.5)

    def _hear(self, change: str, manifest: Manifest) -> None:
        uid = manifest["metadata"]["uid"]
        pod = self._pods.get(uid)
        if pod is None:
            if change == "DELETED" or manifest.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return
            name = manifest["metadata"]["name"]
            logger.info("runs %s", name)
            address = f"10.88.{self._number}.{next(self._addresses)}"
            pod = self._pods[uid] = Pod(self, manifest, address, self._place / f"{name}-{uid[:8]}")
            life = asyncio.create_task(self._see_to(uid, pod))
            self._lives.add(life)
            life.add_done_callback(self._lives.discard)
        pod.hear(None if change == "DELETED" else manifest)

    async def _see_to(self, uid: str, pod: Pod) -> None:
        name = pod.manifest["metadata"]["name"]
        try:
            await pod.live()
            logger.info("%s is no more", name)
        except Exception:
            logger.exception("%s", name)
        finally:
            self._pods.pop(uid, None)

    # ---- what pods want of it ----------------------------------------------------------------------------------
    def cable(self) -> str:
        """A new name for the end of a wire."""
        return f"n{self._number}p{next(self._cables)}"

    async def of_services(self, manifest: Manifest) -> dict[str, str]:
        """What pods find in their environment of the services of their namespace, unless they say otherwise."""
        found = {}
        server = await self.get("/api/v1/namespaces/default/services/kubernetes")
        seen = [server] if server else []
        if manifest["spec"].get("enableServiceLinks", True):
            space = manifest["metadata"]["namespace"]
            listed = await self.get(f"/api/v1/namespaces/{space}/services")
            seen += listed["items"] if listed else []
        for service in seen:
            address, name = service["spec"]["clusterIP"], service["metadata"]["name"].upper().replace("-", "_")
            first = service["spec"]["ports"][0]
            found |= {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(first["port"])}
            found[f"{name}_PORT"] = f"tcp://{address}:{first['port']}"
            for port in service["spec"]["ports"]:
                one = f"{name}_PORT_{port['port']}_TCP"
                found |= {
                    one: f"tcp://{address}:{port['port']}", f"{one}_PROTO": "tcp", f"{one}_ADDR": address,
                    f"{one}_PORT": str(port["port"]),
                }  # fmt: skip
                if "name" in port:
                    found[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
        return found

    async def get(self, path: str) -> Any:
        """What is there, or None."""
        answer = await self._api.get(path)
        return None if answer.status_code == 404 else answer.raise_for_status().json()

    async def report(self, manifest: Manifest, status: Manifest) -> None:
        """Say what a pod is like."""
        data = manifest["metadata"]
        path = f"/api/v1/namespaces/{data['namespace']}/pods/{data['name']}/status"
        await self._patch(path, {"metadata": {"uid": data["uid"]}, "status": status})

    async def forget(self, manifest: Manifest) -> None:
        """A pod that was to go has gone."""
        data = manifest["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": data["uid"]}}
        await self._api.request("DELETE", f"/api/v1/namespaces/{data['namespace']}/pods/{data['name']}", json=body)

    async def _create(self, path: str, body: Manifest) -> None:
        answer = await self._api.post(path, json=body)
        if answer.status_code != 409:
            answer.raise_for_status()

    async def _patch(self, path: str, body: Manifest) -> None:
        for _ in range(20):
            try:
                answer = await self._api.patch(path, content=json.dumps(body), headers=PATCH)
            except httpx.HTTPError as error:
                logger.warning("%s: %s", path, error)
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    if answer.status_code not in (200, 404, 409):
                        logger.error("%s: %s", path, answer.text[:500])
                    return
            await asyncio.sleep(0.5)


async def main() -> None:
    """See the module."""
    name, number, place = sys.argv[1:]
    trust = ssl.create_default_context(cafile=os.environ["CA"])
    said = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    limits = httpx.Limits(max_connections=50)
    async with httpx.AsyncClient(
        base_url=os.environ["SERVER"], verify=trust, headers=said, timeout=30.0, limits=limits, trust_env=False
    ) as api:
        node = Node(api, name, int(number), Path(place))
        await node.join()
        tasks = [asyncio.create_task(node.beat()), asyncio.create_task(node.watch())]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [task.cancel() for task in tasks])
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            logger.info("ends")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main())
