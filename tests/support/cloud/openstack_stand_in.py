"""A stand-in for an OpenStack cloud on loopback: Keystone, Nova, Neutron, Glance and Cinder as far as Headway uses them, by
HTTP. Refusals, lost answers, a lack of hosts and expired tokens are injected by the test; and a test may give servers bodies."""

from __future__ import annotations

import base64
import json
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.cloud.openstack_neutron import Answer, Neutron, Row

REGION = "RegionOne"
ZONES = ("az-a", "az-b")
IMAGE = str(uuid.UUID(int=13))
FLAVORS = {
    "cpu.64": {"vcpus": 64, "ram": 262144, "disk": 20},
    "gpu.h100x8": {
        "vcpus": 96, "ram": 1048576, "disk": 100, "extra_specs": {"pci_passthrough:alias": "nic:8,gpu-h100:8"},
    },
    "head.4": {"vcpus": 4, "ram": 16384, "disk": 80},
    "small.2": {"vcpus": 2, "ram": 2048, "disk": 80},
}  # fmt: skip
SECRET = "secret-of-the-stand-in"


@dataclass
class Refusal:
    """A refusal of the next `times` requests whose method and path fit."""

    method: str
    path: str
    status: int
    body: Row
    times: int
    headers: dict[str, str]


@dataclass
class OpenStackStandIn:
    """The cloud. `born` and `ended` are called for servers that were created and deleted, `halted` with whether it runs."""

    born: Callable[[str, str, str], None] | None = None  # id, address, user data
    ended: Callable[[str], None] | None = None
    halted: Callable[[str, bool], None] | None = None
    cores: int = -1  # quota
    reads_to_build: int = 1  # reads of a server until it is no longer BUILD
    page: int = 1000  # servers, flavors and volumes in one answer, at most
    address_fault: str = ""  # of servers whose address the request chose; "" = none
    keeps_volumes: bool = False  # Cinder fails to delete the volumes of servers
    full: set[tuple[str, str]] = field(default_factory=set)  # (flavor, zone) for which no host is found
    servers: dict[str, Row] = field(default_factory=dict)
    volumes: dict[str, Row] = field(default_factory=dict)
    images: list[Row] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    losing: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # (method, last part of the path) -> answers to lose
    requests: list[tuple[str, str, Row]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # requests that the stand-in does not know
    tokens: set[str] = field(default_factory=set)
    neutron: Neutron = field(default_factory=Neutron)
    url: str = ""
    lock: Any = field(default_factory=RLock)

    def reset(self) -> None:
        """Forgets everything that was made, and everything that was injected."""
        for kept in (self.full, self.servers, self.volumes, self.refusals, self.losing, self.requests, self.unknown):
            kept.clear()  # type: ignore[attr-defined]
        self.cores, self.reads_to_build, self.page = -1, 1, 1000
        self.address_fault, self.keeps_volumes = "", False
        self.tokens.clear()
        self.neutron.reset()
        self.images = [
            {"id": str(uuid.UUID(int=12)), "name": "debian-12", "status": "active", "created_at": "2026-11-02T00:00:00Z"},
            {
                "id": IMAGE, "name": "Debian 13 generic", "status": "active", "os_distro": "debian", "os_version": "13",
                "created_at": "2026-11-01T00:00:00Z",
            },
        ]  # fmt: skip

    def refuse(
        self,
        method: str,
        path: str,
        status: int,
        message: str = "refused",
        kind: str = "",
        times: int = 1,
        **headers: str,
    ) -> None:
        """Refuses requests whose path matches the expression. `kind`: that of Neutron, "" = Nova's form."""
        part = {"type": kind, "message": message} if kind else {"code": status, "message": message}
        body = {"NeutronError" if kind else "refused": part}
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        self.refusals.append(Refusal(method, path, status, body, times, names))

    def calls(self, method: str, path: str) -> list[Row]:
        """Returns the bodies of the requests whose method is this one and whose path matches."""
        return [body for verb, where, body in self.requests if verb == method and re.search(path, where)]

    def living(self) -> list[Row]:
        """Returns the servers."""
        return list(self.servers.values())

    # ---- requests

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Row, token: str
    ) -> tuple[int, Row, dict[str, str]]:
        """Returns status, body and headers of the answer to a request."""
        with self.lock:
            self.requests.append((method, path, body))
            for refusal in self.refusals:
                if refusal.times > 0 and refusal.method == method and re.search(refusal.path, path):
                    refusal.times -= 1
                    return refusal.status, refusal.body, refusal.headers
            if path == "/v3/auth/tokens":
                return self._sign_in(body)
            if token not in self.tokens:
                return (
                    401,
                    {"error": {"code": 401, "message": "The request you have made requires authentication."}},
                    {},
                )
            service, *parts = path.strip("/").split("/")
            found = self._service(service, method, parts[1:], query, body)
            if found is None:
                self.unknown.append(f"{method} {path}")
                return 501, {"error": {"message": "the stand-in does not know this request"}}, {}
            return (*found, {})

    def _service(self, service: str, method: str, parts: list[str], query: dict[str, str], body: Row) -> Answer | None:
        if service == "network":
            return self.neutron.handle(method, parts, query, body)
        if service == "image" and (method, parts) == ("GET", ["images"]):
            wanted = {key: query[key] for key in ("name", "status", "visibility") if key in query}
            rows = [{"visibility": "public", **row} for row in self.images]
            return 200, {"images": [row for row in rows if wanted.items() <= row.items()]}
        if service == "volume":
            return self._cinder(method, parts, query, body)
        return self._nova(method, parts, query, body) if service == "compute" else None

    def _cinder(self, method: str, parts: list[str], query: dict[str, str], body: Row) -> Answer | None:
        if (method, parts) == ("GET", ["volumes", "detail"]):
            return 200, self._page("volumes", list(self.volumes.values()), query)
        row = self.volumes.get(parts[1])
        if row is None:
            return 404, {"itemNotFound": {"code": 404, "message": f"Volume {parts[1]} could not be found."}}
        if method == "POST" and parts[2:] == ["metadata"]:
            row["metadata"] |= body["metadata"]
            return 200, {"metadata": row["metadata"]}
        if method != "DELETE":
            return None
        if row["status"] not in ("available", "error"):
            return _bad("Invalid volume: Volume status must be available or error and must not be attached.")
        del self.volumes[row["id"]]
        return 202, {}

    def _page(self, key: str, rows: list[Row], query: dict[str, str]) -> Row:
        """Returns one page of a list, with a link to the next one."""
        ids, most = [row["id"] for row in rows], min(self.page, int(query.get("limit", self.page)))
        start = ids.index(query["marker"]) + 1 if "marker" in query else 0
        links = {f"{key}_links": [{"rel": "next", "href": "..."}]} if len(rows[start:]) >= most else {}
        return {key: rows[start : start + most], **links}

    def _sign_in(self, body: Row) -> tuple[int, Row, dict[str, str]]:
        identity = body["auth"]["identity"]
        (method,) = identity["methods"]
        part = identity[method]
        given = part["user"]["password"] if method == "password" else part["secret"]
        if given != SECRET:
            return 401, {"error": {"code": 401, "message": "The request you have made requires authentication."}}, {}
        token = uuid.uuid4().hex
        self.tokens.add(token)
        ends = {"compute": "compute/v2.1", "network": "network", "image": "image", "volumev3": "volume/v3"}
        catalog = [
            {
                "type": kind,
                "endpoints": [
                    {"interface": face, "region_id": REGION, "region": REGION, "url": f"{base}/{end}"}
                    for face, base in (("internal", "http://127.0.0.1:9"), ("public", self.url))
                ],
            }
            for kind, end in ends.items()
        ]
        return 201, {"token": {"catalog": catalog}}, {"X-Subject-Token": token}

    # ---- Nova

    def _nova(self, method: str, parts: list[str], query: dict[str, str], body: Row) -> Answer | None:
        if (method, parts) == ("GET", ["flavors", "detail"]):
            flavors: list[Row] = [{"id": f"id-of-{name}", "name": name, **row} for name, row in FLAVORS.items()]
            return 200, self._page("flavors", flavors, query)
        if (method, parts) == ("GET", ["os-availability-zone"]):
            zones = [{"zoneName": zone, "zoneState": {"available": True}} for zone in ZONES]
            return 200, {"availabilityZoneInfo": [*zones, {"zoneName": "away", "zoneState": {"available": False}}]}
        if (method, parts) == ("GET", ["limits"]):
            used = sum(FLAVORS[row["flavor"]["original_name"]]["vcpus"] for row in self.servers.values())  # type: ignore[misc]
            return 200, {"limits": {"absolute": {"maxTotalCores": self.cores, "totalCoresUsed": used}}}
        if (method, parts) == ("GET", ["servers", "detail"]):
            return 200, self._page("servers", [self._seen(row) for row in self.servers.values()], query)
        if (method, parts) == ("POST", ["servers"]):
            return self._create(body["server"])
        if not parts or parts[0] != "servers":
            return None
        row = self.servers.get(parts[1])
        if row is None:
            return 404, {"itemNotFound": {"code": 404, "message": f"Instance {parts[1]} could not be found."}}
        if method == "GET" and len(parts) == 2:
            self._build(row)
            return 200, {"server": self._seen(row)}
        if method == "DELETE" and len(parts) == 2:
            self.delete(row["id"])
            return 204, {}
        return self._act(row, body) if method == "POST" and parts[2:] == ["action"] else None

    def _create(self, asked: Row) -> Answer:
        count, zone = int(asked["max_count"]), asked["availability_zone"]
        name = asked["flavorRef"].removeprefix("id-of-")
        assert asked["min_count"] == asked["max_count"], "all or none"
        assert all(len(value) <= 255 for value in asked["metadata"].values())
        base64.b64decode(asked["user_data"], validate=True)
        (network,) = asked["networks"]
        if zone not in ZONES:
            return _bad("The requested availability zone is not available")
        if asked["imageRef"] not in [row["id"] for row in self.images]:
            return _bad(f"Invalid imageRef provided: {asked['imageRef']}")
        if count > 1 and "fixed_ip" in network:
            return _bad("Invalid fixed IP address: it can't be requested for several servers")
        flavor = FLAVORS[name]
        used = sum(FLAVORS[row["flavor"]["original_name"]]["vcpus"] for row in self.servers.values())  # type: ignore[misc]
        need = flavor["vcpus"] * count  # type: ignore[operator]
        if 0 <= self.cores < used + need:
            words = f"Quota exceeded for cores, instances: Requested {need}, {count}, but already used {used}, "
            words += f"{len(self.servers)} of {self.cores}, 10 cores, instances"
            return 403, {"forbidden": {"code": 403, "message": words}}
        made = []
        for number in range(1, count + 1):
            one = str(uuid.uuid4())
            groups = tuple(group["name"] for group in asked["security_groups"])
            port = self.neutron.plug(network["uuid"], one, "compute:nova", network.get("fixed_ip", ""), groups)
            if port is None:
                return _bad(f"Fixed IP address {network['fixed_ip']} is already in use on instance x.")
            row = {
                "id": one, "name": asked["name"] if count == 1 else f"{asked['name']}-{number}", "status": "BUILD",
                "metadata": dict(asked["metadata"]), "created": _now("Z"), "flavor": {"original_name": name},
                "OS-EXT-AZ:availability_zone": zone, "OS-EXT-STS:task_state": "scheduling", "reads": 0,
                "OS-SRV-USG:launched_at": None, "os-extended-volumes:volumes_attached": [],
                "chosen_address": network.get("fixed_ip", ""), "user_data": base64.b64decode(asked["user_data"]).decode(),
            }  # fmt: skip
            self.servers[one] = row
            made.append(row)
            for disk in asked.get("block_device_mapping_v2", ()):
                volume = str(uuid.uuid4())
                row["os-extended-volumes:volumes_attached"].append({"id": volume, "delete_on_termination": True})
                self.volumes[volume] = {
                    "id": volume, "size": disk["volume_size"], "status": "in-use", "created_at": _now(), "metadata": {},
                    "availability_zone": zone, "attachments": [{"server_id": one}],
                }  # fmt: skip
        return 202, {"server": {"id": made[0]["id"], "links": []}}

    def _build(self, row: Row) -> None:
        """Goes on with a server that is read."""
        row["reads"] += 1
        if row["status"] != "BUILD" or row["reads"] < self.reads_to_build:
            return
        row["OS-EXT-STS:task_state"] = None
        if (row["flavor"]["original_name"], row["OS-EXT-AZ:availability_zone"]) in self.full:
            words = "No valid host was found. There are not enough hosts available."
            row |= {"status": "ERROR", "fault": {"code": 500, "message": words}}
            self.neutron.unplug(row["id"])
            return
        if self.address_fault and row["chosen_address"]:
            row |= {"status": "ERROR", "fault": {"code": 500, "message": self.address_fault}}
            return
        if self.born is None:
            row |= {"status": "ACTIVE", "OS-SRV-USG:launched_at": _now()}
            return
        row["reads"] = -(10**9)  # its body is made once
        row["OS-EXT-STS:task_state"] = "spawning"
        Thread(target=self._spawn, args=(row, self.neutron.addresses(row["id"])[0]["addr"])).start()

    def _spawn(self, row: Row, address: str) -> None:
        """Gives a server its body."""
        assert self.born is not None
        self.born(row["id"], address, row["user_data"])
        with self.lock:
            row |= {"status": "ACTIVE", "OS-SRV-USG:launched_at": _now(), "OS-EXT-STS:task_state": None}
            gone = row["id"] not in self.servers
        if gone and self.ended:
            self.ended(row["id"])

    def _seen(self, row: Row) -> Row:
        shown = {key: value for key, value in row.items() if key not in ("reads", "user_data", "chosen_address")}
        return {**shown, "addresses": {"net": self.neutron.addresses(row["id"])}}

    def delete(self, server: str) -> None:
        """Deletes a server, as a person does in the dashboard."""
        row = self.servers.pop(server)
        self.neutron.unplug(server)
        for one in row.get("os-extended-volumes:volumes_attached", ()):
            if not one["delete_on_termination"]:
                self.volumes[one["id"]] |= {"status": "available", "attachments": []}
            elif self.keeps_volumes:
                self.volumes[one["id"]] |= {"status": "error_deleting", "attachments": []}
            else:
                self.volumes.pop(one["id"], None)
        if self.ended and row["OS-SRV-USG:launched_at"]:
            self.ended(server)

    def _act(self, row: Row, body: Row) -> Answer | None:
        if "os-getConsoleOutput" in body:
            return 200, {"output": f"Debian GNU/Linux 13 {row['name']} ttyS0\n\nlogin: "}
        wanted = {"os-start": ("SHUTOFF", "ACTIVE"), "os-stop": ("ACTIVE", "SHUTOFF")}.get(next(iter(body)))
        if wanted is None:
            return None
        if row["status"] != wanted[0]:
            words = f"Cannot '{next(iter(body))}' instance {row['id']} while it is in vm_state {row['status']}"
            return 409, {"conflictingRequest": {"code": 409, "message": words}}
        row["status"] = wanted[1]
        if self.halted:
            self.halted(row["id"], wanted[1] == "ACTIVE")
        return 202, {}


def _bad(message: str) -> Answer:
    return 400, {"badRequest": {"code": 400, "message": message}}


def _now(end: str = "") -> str:
    return f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%S')}{end or '.000000'}"


@contextmanager
def openstack_stand_in() -> Iterator[OpenStackStandIn]:
    """Gives a test a cloud without anything in it."""
    cloud = OpenStackStandIn()
    cloud.reset()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            token = self.headers.get("X-Auth-Token", "")
            status, answer, headers = cloud.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body, token)
            key = (self.command, parts.path.rpartition("/")[2])
            if cloud.losing.get(key, 0) > 0:
                cloud.losing[key] -= 1
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = b"" if status == 204 else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cloud.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def openstack_environment(url: str) -> dict[str, str]:
    """Returns the environment in which a server uses the stand-in."""
    return {
        "OS_AUTH_URL": url,
        "OS_USERNAME": "headway",
        "OS_PASSWORD": SECRET,
        "OS_PROJECT_NAME": "lab",
    }


def use_openstack(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Makes the clients of this process use the stand-in."""
    monkeypatch.delenv("OS_CLOUD", raising=False)
    for name, value in openstack_environment(url).items():
        monkeypatch.setenv(name, value)
