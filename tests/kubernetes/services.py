"""A stand-in for kube-proxy and the cluster's name server: services have their addresses, and names in a file.

    services.py HOSTS       with SERVER, CA and TOKEN in the environment

Each port of each service is listened to at the service's own address, and what connects there is connected to one of
the pods that the endpoints controller names as ready. HOSTS is what pods have as /etc/hosts.
"""

import asyncio
import contextlib
import itertools
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx

#: seconds between two looks
PAUSE = 0.2
LOCAL = "127.0.0.1 localhost\n"

Place = tuple[str, int]


class Services:
    """See the module."""

    def __init__(self, api: httpx.AsyncClient, hosts: Path) -> None:
        self._api, self._hosts = api, hosts
        self._doors: dict[Place, asyncio.Server] = {}
        self._behind: dict[Place, list[Place]] = {}
        self._turn = itertools.count()

    async def look(self) -> None:
        """Do as the API server says now."""
        services = await self._items("services")
        endpoints = {name_of(each): each for each in await self._items("endpoints")}
        names = [LOCAL]
        behind: dict[Place, list[Place]] = {}
        for service in services:
            address, (space, name) = service["spec"]["clusterIP"], name_of(service)
            names.append(f"{address} {name} {name}.{space} {name}.{space}.svc {name}.{space}.svc.cluster.local\n")
            for port in service["spec"]["ports"]:
                behind[address, port["port"]] = places(endpoints.get((space, name), {}), port.get("name"))
        text = "".join(sorted(names))
        if self._hosts.read_text() != text:
            self._hosts.write_text(text)  # in its place: containers have this very file
        self._behind = behind
        for door in behind.keys() - self._doors.keys():
            self._doors[door] = await asyncio.start_server(lambda *ends, d=door: self._serve(d, *ends), *door)
        for door in self._doors.keys() - behind.keys():
            self._doors.pop(door).close()

    async def _items(self, kind: str) -> list[dict[str, Any]]:
        answer = (await self._api.get(f"/api/v1/{kind}")).raise_for_status().json()
        found: list[dict[str, Any]] = answer["items"]
        return found

    async def _serve(self, door: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = self._behind.get(door)
            if not there:
                return
            far_reader, far_writer = await asyncio.open_connection(*there[next(self._turn) % len(there)])
            ways = [asyncio.create_task(copy(reader, far_writer)), asyncio.create_task(copy(far_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            far_writer.close()
        except OSError:
            pass
        finally:
            writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """From one to the other until one ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()


def name_of(item: dict[str, Any]) -> tuple[str, str]:
    """Its namespace and name."""
    return item["metadata"]["namespace"], item["metadata"]["name"]


def places(endpoints: dict[str, Any], port: str | None) -> list[Place]:
    """Where what is ready listens for the port with this name."""
    return [
        (address["ip"], each["port"])
        for subset in endpoints.get("subsets", ()) for address in subset.get("addresses", ())
        for each in subset.get("ports", ()) if each.get("name") == port
    ]  # fmt: skip


async def main() -> None:
    """See the module."""
    trust = ssl.create_default_context(cafile=os.environ["CA"])
    said = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with httpx.AsyncClient(
        base_url=os.environ["SERVER"], verify=trust, headers=said, timeout=30.0, trust_env=False
    ) as api:
        services = Services(api, Path(sys.argv[1]))
        while True:
            try:
                await services.look()
            except httpx.HTTPError as error:
                print(f"no news of services: {error}", flush=True)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(main())
