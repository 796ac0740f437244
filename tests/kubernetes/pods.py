"""A pod's life at its node, as a kubelet sees to it: started, probed, started again, ended, and what is said of it."""

import asyncio
import base64
import contextlib
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from container import Container

#: images with such names are in no registry
ABSENT = "absent/"
#: seconds before a container is started again: at first, and at most
BACK_OFF, MOST_BACK_OFF = 0.5, 10.0

Manifest = dict[str, Any]


class NotYet(Exception):
    """Something that the pod needs is not there; why, in Kubernetes' words."""


class Pod:
    """See the module. `manifest` is what the API server knows, and is replaced when that changes."""

    def __init__(self, node: Any, manifest: Manifest, address: str, place: Path) -> None:
        self.manifest = manifest
        #: it is to go, or is no more
        self.going = asyncio.Event()
        self.is_forgotten = False
        self._node, self._address, self._place = node, address, place
        self._log = place / "log"
        (self._spec,) = manifest["spec"]["containers"]
        self._started = now()
        self._deadline: float | None = None
        self._restarts = 0
        self._is_ready = False
        self._end: Manifest | None = None
        self._unhealthy = asyncio.Event()
        place.mkdir(parents=True)

    def hear(self, manifest: Manifest | None) -> None:
        """It has changed, or was deleted without waiting for its node."""
        if manifest is None:
            self.is_forgotten = True
            self.going.set()
        else:
            self.manifest = manifest
            if "deletionTimestamp" in manifest["metadata"]:
                self.going.set()

    async def live(self) -> None:
        """All of it, until it is deleted."""
        spec = self.manifest["spec"]
        if "activeDeadlineSeconds" in spec:
            self._deadline = asyncio.get_running_loop().time() + spec["activeDeadlineSeconds"]
        await self._say("Pending", {"waiting": {"reason": "ContainerCreating"}})
        pause = BACK_OFF
        phase, more = "Succeeded", {}
        while not self.going.is_set():
            try:
                environment, volumes = await self._needs()
            except NotYet as why:
                reason, _, message = str(why).partition(": ")
                await self._say("Pending", {"waiting": {"reason": reason, "message": message}})
                await self._unless_going(BACK_OFF)
                continue
            code, more = await self._run(environment, volumes)
            phase = "Failed" if code or more else "Succeeded"
            self._end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now()}
            policy = spec.get("restartPolicy", "Always")
            if self.going.is_set() or more or policy == "Never" or (policy == "OnFailure" and code == 0):
                break
            self._restarts += 1
            await self._say("Running", {"waiting": {"reason": "CrashLoopBackOff"}})
            await self._unless_going(pause)
            pause = min(2 * pause, MOST_BACK_OFF)
        if self._end is not None and not self.is_forgotten:
            await self._say(phase, {"terminated": self._end}, **more)
        await self.going.wait()
        if not self.is_forgotten:
            await self._node.forget(self.manifest)

    async def _run(self, environment: dict[str, str], volumes: dict[str, Path]) -> tuple[int, Manifest]:
        """Run the container once; its exit code, and what is said of the pod if it must not be started again."""
        container = Container(self._place / f"run{self._restarts}", self._node.image, self._node.hosts)
        command = [*self._spec["command"], *self._spec.get("args", ())]
        self._unhealthy.clear()
        cable = self._node.cable()
        name = self.manifest["metadata"]["name"]
        await container.start(command, environment, volumes, name, self._address, cable, self._log)
        running = {"running": {"startedAt": now()}}
        self._is_ready = "readinessProbe" not in self._spec
        await self._say("Running", running)
        ended = asyncio.create_task(container.wait())
        probes = [
            asyncio.create_task(self._probe(container, kind, running))
            for kind in ("readinessProbe", "livenessProbe") if kind in self._spec
        ]  # fmt: skip
        others = [asyncio.create_task(event.wait()) for event in (self.going, self._unhealthy)]
        left = None if self._deadline is None else max(0.0, self._deadline - asyncio.get_running_loop().time())
        more: Manifest = {}
        try:
            done, _ = await asyncio.wait([ended, *others], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in probes:
                task.cancel()
            if ended not in done:
                if not done:
                    more = {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than specified"}
                await container.stop(0.0 if self.is_forgotten else self._grace)
            self._is_ready = False
            return await ended, more
        finally:
            for task in (*probes, *others):
                task.cancel()
            if not ended.done():
                container.signal(signal.SIGKILL)
                await ended

    @property
    def _grace(self) -> float:
        spoken = self.manifest["metadata"].get("deletionGracePeriodSeconds")
        return float(self.manifest["spec"].get("terminationGracePeriodSeconds", 30) if spoken is None else spoken)

    async def _unless_going(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.going.wait(), seconds)

    # ---- what it needs ---------------------------------------------------------------------------------------------
    async def _needs(self) -> tuple[dict[str, str], dict[str, Path]]:
        """Environment and volumes. Raises `NotYet`."""
        if self._spec["image"].startswith(ABSENT):
            raise NotYet(f'ImagePullBackOff: Back-off pulling image "{self._spec["image"]}"')
        environment: dict[str, str] = await self._node.of_services(self.manifest)
        for variable in self._spec.get("env", ()):
            if "valueFrom" in variable:
                named = variable["valueFrom"]["secretKeyRef"]
                found = await self._content("secrets", named["name"])
                environment[variable["name"]] = found[named["key"]].decode()
            else:
                environment[variable["name"]] = variable.get("value", "")
        kept = {volume["name"]: await self._volume(volume) for volume in self.manifest["spec"].get("volumes", ())}
        return environment, {mount["mountPath"]: kept[mount["name"]] for mount in self._spec.get("volumeMounts", ())}

    async def _volume(self, volume: Manifest) -> Path:
        if "secret" in volume:
            found = await self._content("secrets", volume["secret"]["secretName"])
        else:
            found = await self._content("configmaps", volume["configMap"]["name"])
        place = self._place / "volumes" / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        for name, data in found.items():
            (place / name).write_bytes(data)
        return place

    async def _content(self, kind: str, name: str) -> dict[str, bytes]:
        space = self.manifest["metadata"]["namespace"]
        found = await self._node.get(f"/api/v1/namespaces/{space}/{kind}/{name}")
        if found is None:
            raise NotYet(f'CreateContainerConfigError: {kind[:-1]} "{name}" not found')
        data = found.get("data", {})
        if kind == "configmaps":
            return {key: text.encode() for key, text in data.items()}
        return {key: base64.b64decode(text) for key, text in data.items()}

    # ---- probes ----------------------------------------------------------------------------------------------------
    async def _probe(self, container: Container, kind: str, running: Manifest) -> None:
        probe, failures = self._spec[kind], 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            failures = 0 if await self._passes(container, probe) else failures + 1
            if kind == "readinessProbe":
                is_ready = failures == 0 or (self._is_ready and failures < probe["failureThreshold"])
                if is_ready != self._is_ready:
                    self._is_ready = is_ready
                    await self._say("Running", running)
            elif failures >= probe["failureThreshold"]:
                self._unhealthy.set()
                return
            await asyncio.sleep(probe["periodSeconds"])

    async def _passes(self, container: Container, probe: Manifest) -> bool:
        if "exec" in probe:
            return await container.exec(probe["exec"]["command"], probe["timeoutSeconds"])
        try:
            connecting = asyncio.open_connection(self._address, probe["tcpSocket"]["port"])
            _, writer = await asyncio.wait_for(connecting, probe["timeoutSeconds"])
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    # ---- what is said of it ----------------------------------------------------------------------------------------
    async def _say(self, phase: str, state: Manifest, **more: Any) -> None:
        is_running = "running" in state
        has_been = self._end is not None and "terminated" not in state
        words = {
            "name": self._spec["name"], "image": self._spec["image"], "imageID": "", "state": state,
            "ready": is_running and self._is_ready, "restartCount": self._restarts, "started": is_running,
            "lastState": {"terminated": self._end} if has_been else {},
        }  # fmt: skip
        conditions = [
            {"type": name, "status": str(value), "lastTransitionTime": now()}
            for name, value in (
                ("Initialized", True), ("Ready", words["ready"]), ("ContainersReady", words["ready"])
            )
        ]  # fmt: skip
        status = {
            "phase": phase, "conditions": conditions, "containerStatuses": [words], "hostIP": self._node.address,
            "podIP": self._address, "podIPs": [{"ip": self._address}], "startTime": self._started, **more,
        }  # fmt: skip
        await self._node.report(self.manifest, status)


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
