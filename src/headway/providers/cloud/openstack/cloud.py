"""OpenStackCloud: CloudApi by Nova, Neutron, Glance and Cinder."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceState, Quota, RentedThing
from headway.errors import Unanswered, Unreachable
from headway.providers.base import ReclaimNotice
from headway.providers.cloud.api import LaunchOrder
from headway.providers.cloud.machine_labels import SERVER, labels_of, labels_of_claim, read_claim
from headway.providers.cloud.openstack.errors import error_of_fault
from headway.providers.cloud.openstack.network import OpenStackNetworks
from headway.providers.cloud.openstack.servers import (
    LAUNCH,
    VOLUMES,
    is_base_image,
    read_flavor,
    read_server,
    read_time,
)
from headway.providers.cloud.openstack.session import COMPUTE, IMAGE, VOLUME, OpenStackSession
from headway.providers.cloud.refusals import CloudRefusal, OtherOrder, QuotaExceeded, Rejected, after_launch

LONGEST_LABEL = 255  # characters of a value of a server's metadata
PLACED_S = 60.0  # until Nova has found hosts for new servers
LOST_S = 10.0  # after a lost answer, until the servers of the request are listed
_POLL_S = 1.0
_PAGE = 500  # rows of one request
_UNLIMITED = -1
_CONSOLE_LINES = 40
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")


class OpenStackCloud:
    """One region of an OpenStack cloud. Implements providers.cloud.api.CloudApi."""

    def __init__(
        self,
        settings: CloudSettings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._session = OpenStackSession(settings.region, sleep)
        self._networks = OpenStackNetworks(self._session, sleep)
        self._clock = clock
        self._sleep = sleep

    async def zones(self, settings: CloudSettings) -> tuple[str, ...]:
        return await self._networks.zones(settings)

    async def offers(self, types: Sequence[str], zones: Sequence[str], purchase: PurchaseOption) -> tuple[Offer, ...]:
        """As in CloudApi. OpenStack says no prices, no zones of a flavor, and has no spot machines."""
        if purchase is not PurchaseOption.ON_DEMAND:
            return ()
        day = datetime.now(UTC).date()
        flavors = {
            name: read_flavor(row, self._settings.region, "", day) for name, row in (await self._flavors()).items()
        }
        return tuple(replace(flavors[name], zone=zone) for name in types if name in flavors for zone in zones)

    async def _flavors(self) -> dict[str, Mapping[str, Any]]:
        """Returns the flavors by their names."""
        return {row["name"]: row for row in await self._pages(COMPUTE, "/flavors/detail", "flavors")}

    async def quota(self, offer: Offer) -> Quota | None:  # noqa: ARG002
        """Returns the limit of the project's vCPUs, which holds for all flavors."""
        try:
            limits = (await self._session.get(COMPUTE, "/limits"))["limits"]["absolute"]
        except CloudRefusal:  # the right to read limits is not needed to rent
            return None
        most = limits.get("maxTotalCores", _UNLIMITED)
        if most == _UNLIMITED:
            return None
        return Quota("cores", float(most), float(limits.get("totalCoresUsed", 0)))

    async def find_image(self, debian: str) -> str:
        """As in CloudApi: a public image whose properties say this Debian, else one whose name does. Images of the project itself
        may be backups of its servers, which have the properties of the image that the server was made from."""
        query = {"status": "active", "visibility": "public", "sort": "created_at:desc", "limit": "200"}
        answer = await self._session.get(IMAGE, "/images", **query)
        rows = [row for row in answer["images"] if is_base_image(row)]
        named = re.compile(rf"debian[ _-]*{debian}\b", re.IGNORECASE)
        by_property = [
            row for row in rows if (row.get("os_distro"), str(row.get("os_version"))[:2]) == ("debian", debian)
        ]
        by_name = [row for row in rows if named.search(row.get("name") or "")]
        for row in (*by_property, *by_name):
            return str(row["id"])
        raise Rejected("NoImage", f"{self._settings.region} has no public image of Debian {debian}: give cloud.image")

    async def find_network(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        return await self._networks.find(server, cluster, settings)

    async def make_network(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str] = ()
    ) -> CloudNetwork:
        return await self._networks.make(server, cluster, settings, ssh_from, others)

    async def remove_network(self, server: str, cluster: str) -> None:
        await self._networks.remove(server, cluster)

    # ---- launches

    async def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        """As in CloudApi. Nova has no tokens: each server has that of its launch in its metadata, and before a launch these
        servers are looked for. Nova takes a request at once and looks for hosts after that, all or none: this waits for it,
        and ends servers that have none."""
        if len(order.machines) > LONGEST_LABEL:
            count = len(order.claims)
            raise Rejected("NameTooLong", f"{count} machines with such different names can't be launched together")
        if not (rows := await self._launched(order)):
            rows = await self._create(order)
        rows = await self._placed(order, rows)
        await self._label_volumes(rows)
        return tuple(read_server(row) for row in rows)

    async def _create(self, order: LaunchOrder) -> list[Mapping[str, Any]]:
        flavor = (await self._flavors()).get(order.offer.instance_type)
        if flavor is None:
            raise Rejected("NoFlavor", f"there is no flavor {order.offer.instance_type}: correct cloud.types")
        body = await self._body(order, flavor)
        try:
            await self._session.call("POST", COMPUTE, "/servers", {"server": body})
        except QuotaExceeded as error:
            raise QuotaExceeded(f"{error.name} for {order.offer.instance_type}", error.have, error.need) from error
        except Unanswered:
            ends = self._clock() + LOST_S
            while not (found := await self._launched_now(order)):
                if self._clock() >= ends:
                    raise
                await self._sleep(_POLL_S)
            return found
        return await self._launched_now(order)

    async def _launched_now(self, order: LaunchOrder) -> list[Mapping[str, Any]]:
        with after_launch():
            return await self._launched(order)

    async def _body(self, order: LaunchOrder, flavor: Mapping[str, Any]) -> dict[str, Any]:
        image = await self._image(order.image)
        network: dict[str, str] = {"uuid": await self._networks.network_of(order.subnet)}
        if order.address:
            network["fixed_ip"] = order.address
        body: dict[str, Any] = {
            "name": order.machines,
            "flavorRef": flavor["id"],
            "imageRef": image,
            "availability_zone": order.offer.zone,
            "networks": [network],
            "security_groups": [{"name": group} for group in order.groups],
            "user_data": base64.b64encode(order.user_data.encode()).decode(),
            "config_drive": True,  # the metadata service may be missing; only root reads the drive
            "metadata": {**labels_of(order), LAUNCH: order.token},
            "min_count": len(order.claims),
            "max_count": len(order.claims),
        }
        if int(flavor["disk"]) < order.disk_gib:  # the flavor's own disk is too small
            disk = {"source_type": "image", "destination_type": "volume", "uuid": image, "boot_index": 0}
            disk |= {"volume_size": order.disk_gib, "delete_on_termination": True}
            body["block_device_mapping_v2"] = [disk]
        return body

    async def _image(self, wanted: str) -> str:
        """Returns the id of an image that is named by its id or its name."""
        if _UUID.fullmatch(wanted.lower()):
            return wanted
        rows = (await self._session.get(IMAGE, "/images", name=wanted, status="active"))["images"]
        if len(rows) != 1:
            there = "there is no active image" if not rows else f"{len(rows)} images are called"
            raise Rejected("Image", f"{there} {wanted}: give the id of one in cloud.image")
        return str(rows[0]["id"])

    async def _launched(self, order: LaunchOrder) -> list[Mapping[str, Any]]:
        """Returns the servers that an earlier request made for the order; [] if there are none. Of a request that was carried
        out twice, one half is ended; so is one of which Nova made only a part. Raises OtherOrder if they are of another
        flavor."""
        rows = [row for row in await self._servers() if (row.get("metadata") or {}).get(LAUNCH) == order.token]
        rows.sort(key=lambda row: (row["created"], row["id"]))
        if any((row.get("flavor") or {}).get("original_name") != order.offer.instance_type for row in rows):
            raise OtherOrder("OtherOrder", "the same launch was made with another flavor")
        mine: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            mine.setdefault(read_server(row).claim.machine, row)
        names = [claim.machine for claim in order.claims]
        whole = [mine[name] for name in names if name in mine]
        keep = whole if len(whole) == len(names) else []
        with after_launch():
            await self.terminate([row["id"] for row in rows if row not in keep])
        return keep

    async def _placed(self, order: LaunchOrder, rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Waits until Nova has found hosts for all servers, PLACED_S at most; Headway waits further for those that run. Raises
        why there are none, after it has ended all servers of the order."""
        ends = self._clock() + PLACED_S
        while True:
            failed = [row for row in rows if row["status"] == "ERROR" and not row.get("OS-SRV-USG:launched_at")]
            if failed:
                fault = str((failed[0].get("fault") or {}).get("message", ""))
                with after_launch():
                    await self.terminate([row["id"] for row in rows])
                raise error_of_fault(fault, order.offer, order.address)
            waiting = [row for row in rows if row["status"] == "BUILD"]
            if rows and (not waiting or self._clock() >= ends):
                return rows
            if not rows:
                raise Unanswered("Nova does not list the servers that it was asked for", hint="try again in a minute")
            await self._sleep(_POLL_S)
            with after_launch():
                rows = [await self._server(row["id"]) or row for row in rows]

    async def _label_volumes(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the claims of servers on the volumes that Nova is to delete with them, because it may fail to. Leaves volumes
        that a person has attached. Best effort: after the launch, and once more before a server is deleted."""
        with contextlib.suppress(CloudRefusal, Unreachable):
            for row in rows:
                claim = read_server(row).claim
                volumes = [one["id"] for one in row.get(VOLUMES, ()) if one.get("delete_on_termination")]
                for volume in volumes if claim.server else ():  # a person may have removed the server's own labels
                    labels = {"metadata": labels_of_claim(claim)}
                    await self._session.call("POST", VOLUME, f"/volumes/{volume}/metadata", labels, missing_ok=True)

    # ---- instances

    async def _pages(self, service: str, path: str, key: str) -> list[Mapping[str, Any]]:
        """Returns all rows of a list. A page may have fewer rows than were asked for: the link to the next one counts."""
        found: list[Mapping[str, Any]] = []
        query = {"limit": str(_PAGE)}
        while True:
            answer = await self._session.get(service, path, **query)
            found += answer[key]
            if not answer[key] or f"{key}_links" not in answer:
                return found
            query["marker"] = answer[key][-1]["id"]

    async def _servers(self) -> list[Mapping[str, Any]]:
        return await self._pages(COMPUTE, "/servers/detail", "servers")

    async def _server(self, instance: str) -> Mapping[str, Any] | None:
        found = await self._session.find(COMPUTE, f"/servers/{instance}")
        return None if found is None else found["server"]

    async def add_public_address(self, instance: Instance) -> None:
        if not instance.public_address:
            await self._networks.add_address(instance, self._settings)

    async def instances(self, server: str, cluster: str = "") -> tuple[Instance, ...]:
        """As in CloudApi. Nova lists no server that was deleted, so the end of one is when it is missed."""
        found = (read_server(row) for row in await self._servers() if (row.get("metadata") or {}).get(SERVER) == server)
        return tuple(one for one in found if cluster in ("", one.claim.cluster))

    async def describe(self, instance: str) -> Instance | None:
        row = await self._server(instance)
        return None if row is None else read_server(row)

    async def console(self, instance: str) -> str:
        asked = {"os-getConsoleOutput": {"length": _CONSOLE_LINES}}
        answer = await self._session.call("POST", COMPUTE, f"/servers/{instance}/action", asked, missing_ok=True)
        return str((answer or {}).get("output") or "")

    async def terminate(self, instances: Sequence[str]) -> None:
        """As in CloudApi. No failure of another service, and of no other server, keeps a server from being deleted: an address
        that is left is found by its description."""
        addresses: dict[str, list[str]] = {}
        with contextlib.suppress(CloudRefusal, Unreachable):
            for one in instances:
                await self._label_volumes([row] if (row := await self._server(one)) else [])
                addresses[one] = await self._networks.addresses_of(one)
        refusals: list[Rejected] = []
        for one in instances:
            try:
                await self._session.delete(COMPUTE, f"/servers/{one}")
            except Rejected as error:  # it is locked, for example
                refusals.append(error)
                addresses.pop(one, None)
        for address in chain.from_iterable(addresses.values()):
            await self._networks.delete_address(address)
        for refusal in refusals:
            raise refusal

    async def start(self, instance: str) -> None:
        await self._act(instance, "os-start")

    async def stop(self, instance: str, *, at_once: bool) -> None:  # noqa: ARG002
        """As in CloudApi. Nova cuts the power after the time that the image allows for a shutdown, a minute by default."""
        await self._act(instance, "os-stop")

    async def _act(self, instance: str, action: str) -> None:
        """Does nothing for a server that is in that state already."""
        try:
            await self._session.call("POST", COMPUTE, f"/servers/{instance}/action", {action: None})
        except Rejected as error:
            if not error.code.endswith("409"):
                raise

    # ---- what costs money

    async def costly_things(self, server: str) -> tuple[RentedThing, ...]:
        """As in CloudApi. A server that failed counts until it is deleted."""
        rows = [row for row in await self._servers() if (row.get("metadata") or {}).get(SERVER) == server]
        things, claims = [], {}
        for row in rows:
            one = read_server(row)
            claims[one.id] = one.claim
            state = "failed" if one.state is InstanceState.ENDED else one.state.value
            things.append(
                RentedThing(
                    one.id, "instance", one.claim.cluster, one.claim.machine, one.launched_at, one.instance_type, one.zone,
                    state, one.usd_per_hour or None, number=one.claim.number,
                )
            )  # fmt: skip
        for row in await self._volumes():
            user = next((use["server_id"] for use in row.get("attachments", ()) if use["server_id"] in claims), "")
            claim = claims.get(user) or read_claim(row.get("metadata") or {})
            if claim.server == server and row["status"] != "deleting":
                things.append(
                    RentedThing(
                        row["id"], "volume", claim.cluster, claim.machine, read_time(row["created_at"]),
                        f"{row['size']} GiB", row.get("availability_zone") or "", row["status"], number=claim.number,
                    )
                )  # fmt: skip
        return (*things, *await self._networks.address_things(server))

    async def _volumes(self) -> Sequence[Mapping[str, Any]]:
        if not await self._session.has(VOLUME):
            return []
        return await self._pages(VOLUME, "/volumes/detail", "volumes")

    async def delete_things(self, things: Sequence[RentedThing]) -> None:
        """As in CloudApi. Deletes all that can be deleted, then raises CloudRefusal for a volume that can't be."""
        refusals: list[CloudRefusal] = []
        for thing in things:
            if thing.kind == "address":
                await self._networks.delete_address(thing.id)
            elif thing.kind == "volume" and thing.state != "in-use":
                try:
                    await self._session.delete(VOLUME, f"/volumes/{thing.id}")
                except Rejected as error:
                    words = f"volume {thing.id} is {thing.state} and can't be deleted: {error.message}"
                    refusals.append(
                        CloudRefusal(words, hint="ask the cloud's administrator to delete it, then try again")
                    )
            elif thing.kind == "instance":
                await self.terminate([thing.id])
        for refusal in refusals:
            raise refusal

    async def notices(self, instances: Sequence[Instance]) -> tuple[ReclaimNotice, ...]:  # noqa: ARG002
        """Returns none: OpenStack takes no machine back."""
        return ()
