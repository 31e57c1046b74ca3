"""The part of Neutron that Headway uses, in memory, with Neutron's refusals."""

from __future__ import annotations

import ipaddress
import uuid
from dataclasses import dataclass, field
from typing import Any

Answer = tuple[int, dict[str, Any]]
Row = dict[str, Any]
KINDS = {
    "networks": "network", "subnets": "subnet", "routers": "router", "ports": "port", "floatingips": "floatingip",
    "security-groups": "security_group", "security-group-rules": "security_group_rule",
}  # fmt: skip


def fault(status: int, kind: str, message: str) -> Answer:
    return status, {"NeutronError": {"type": kind, "message": message, "detail": ""}}


@dataclass
class Neutron:
    """The networks of one project. `quotas`: kind in the plural -> how many there may be. `missing`: kinds that the cloud does
    not have, for example those of the router service. `router_owner`: who owns the ports of routers in subnets."""

    quotas: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    router_owner: str = ""
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.quotas.clear()
        self.missing.clear()
        self.router_owner = "network:router_interface"
        self.rows = {kind: {} for kind in KINDS}
        self.external = self.add("networks", {"name": "public", "router:external": True})["id"]

    def add(self, kind: str, fields: Row) -> Row:
        row = {"id": str(uuid.uuid4()), "description": "", **fields}
        self.rows[kind][row["id"]] = row
        return row

    def handle(self, method: str, parts: list[str], query: dict[str, str], body: Row) -> Answer | None:
        """Returns the answer, None for a request that is not known."""
        if not parts or parts[0] not in KINDS or len(parts) > 3:
            return None
        if parts[0] in self.missing:
            return 404, {"code": "404 Not Found", "title": "Not Found", "message": "The resource could not be found."}
        kind, single = parts[0], KINDS[parts[0]]
        plural = kind.replace("-", "_")
        if len(parts) == 1 and method == "GET":
            rows = [self._seen(kind, row) for row in self.rows[kind].values() if _fits(row, query)]
            return 200, {plural: rows}
        if len(parts) == 1 and method == "POST":
            return self._create(kind, single, body[single])
        if len(parts) < 2:
            return None
        row = self.rows[kind].get(parts[1])
        if row is None:
            return fault(404, f"{single.title()}NotFound", f"{single} {parts[1]} could not be found.")
        if len(parts) == 3:
            return self._change_router(row, parts[2], body) if method == "PUT" else None
        if method == "GET":
            return 200, {single: self._seen(kind, row)}
        if method == "PUT":
            row.update(body[single])
            return 200, {single: row}
        return self._delete(kind, row) if method == "DELETE" else None

    def _seen(self, kind: str, row: Row) -> Row:
        if kind != "security-groups":
            return row
        rules = [one for one in self.rows["security-group-rules"].values() if one["security_group_id"] == row["id"]]
        return {**row, "security_group_rules": rules}

    def _create(self, kind: str, single: str, fields: Row) -> Answer:
        if len(self.rows[kind]) >= self.quotas.get(kind, 1000):
            return fault(409, "OverQuota", f"Quota exceeded for resources: ['{single}'].")
        if kind == "subnets":
            ipaddress.IPv4Network(fields["cidr"])
            assert fields["network_id"] in self.rows["networks"]
        if kind == "security-group-rules":
            fields = {"port_range_min": None, "port_range_max": None, **fields}
            if fields["remote_ip_prefix"]:  # Neutron writes a mask to an address
                fields["remote_ip_prefix"] = str(ipaddress.IPv4Network(fields["remote_ip_prefix"]))
            same = [row for row in self.rows[kind].values() if {k: v for k, v in row.items() if k in fields} == fields]
            if same:
                return fault(409, "SecurityGroupRuleExists", "Security group rule already exists.")
        if kind == "floatingips":
            assert fields["floating_network_id"] == self.external
            fields = {**fields, "floating_ip_address": f"203.0.113.{len(self.rows[kind]) + 10}"}
        row = self.add(kind, fields)
        if kind == "security-groups":
            self.add("security-group-rules", _rule(row["id"], "egress"))
        return 201, {single: self._seen(kind, row)}

    def _change_router(self, router: Row, action: str, body: Row) -> Answer | None:
        ports = [port for port in self.rows["ports"].values() if port["device_id"] == router["id"]]
        mine = [port for port in ports if port["fixed_ips"][0]["subnet_id"] == body["subnet_id"]]
        if action == "add_router_interface":
            if mine:
                return fault(400, "BadRequest", "Router already has a port on subnet")
            subnet = self.rows["subnets"][body["subnet_id"]]
            self.plug(subnet["network_id"], router["id"], self.router_owner, "", ())
            return 200, body
        if action == "remove_router_interface":
            for port in mine:
                del self.rows["ports"][port["id"]]
            return (200, body) if mine else fault(404, "RouterInterfaceNotFound", "no such interface")
        return None

    def _delete(self, kind: str, row: Row) -> Answer:
        ports = list(self.rows["ports"].values())
        used = {
            "networks": any(port["network_id"] == row["id"] for port in ports),
            "subnets": any(port["fixed_ips"][0]["subnet_id"] == row["id"] for port in ports),
            "routers": any(port["device_id"] == row["id"] for port in ports),
            "security-groups": any(row["id"] in port["security_groups"] for port in ports),
        }.get(kind, False)
        if used:
            return fault(409, f"{KINDS[kind].title()}InUse", f"{kind} {row['id']} is in use.")
        del self.rows[kind][row["id"]]
        for below, owner in (("subnets", "network_id"), ("security-group-rules", "security_group_id")):
            for one in [key for key, part in self.rows[below].items() if part[owner] == row["id"]]:
                del self.rows[below][one]
        return 204, {}

    # ---- for Nova

    def plug(self, network: str, device: str, owner: str, address: str, groups: tuple[str, ...]) -> Row | None:
        """Makes a port. Returns None if its address is taken."""
        subnet = next(row for row in self.rows["subnets"].values() if row["network_id"] == network)
        taken = {ip["ip_address"] for port in self.rows["ports"].values() for ip in port["fixed_ips"]}
        if address in taken:
            return None
        hosts = (str(host) for host in ipaddress.IPv4Network(subnet["cidr"]).hosts())
        where = address or next(host for host in list(_first(hosts, 250))[100:] if host not in taken)
        if owner.startswith("network:"):
            where = str(ipaddress.IPv4Network(subnet["cidr"])[1])
        ips = [{"subnet_id": subnet["id"], "ip_address": where}]
        fields = {"network_id": network, "device_id": device, "device_owner": owner, "fixed_ips": ips}
        return self.add("ports", {**fields, "security_groups": list(groups)})

    def unplug(self, device: str) -> None:
        """Deletes the ports of a server. Its floating IPs stay."""
        for port in [port for port in self.rows["ports"].values() if port["device_id"] == device]:
            for row in self.rows["floatingips"].values():
                if row.get("port_id") == port["id"]:
                    row["port_id"] = None
            del self.rows["ports"][port["id"]]

    def addresses(self, device: str) -> list[Row]:
        """Returns the addresses of a server in Nova's form."""
        found = []
        for port in (port for port in self.rows["ports"].values() if port["device_id"] == device):
            found.append({"addr": port["fixed_ips"][0]["ip_address"], "version": 4, "OS-EXT-IPS:type": "fixed"})
            found += [
                {"addr": row["floating_ip_address"], "version": 4, "OS-EXT-IPS:type": "floating"}
                for row in self.rows["floatingips"].values()
                if row.get("port_id") == port["id"]
            ]
        return found


def _first(rows: Any, count: int) -> Any:
    for _ in range(count):
        if (row := next(rows, None)) is not None:
            yield row


def _rule(group: str, direction: str) -> Row:
    return {
        "security_group_id": group, "direction": direction, "ethertype": "IPv4", "protocol": None,
        "remote_ip_prefix": None, "remote_group_id": None, "port_range_min": None, "port_range_max": None,
    }  # fmt: skip


def _fits(row: Row, query: dict[str, str]) -> bool:
    return all(str(row.get(key, "")).lower() == value.lower() for key, value in query.items())
