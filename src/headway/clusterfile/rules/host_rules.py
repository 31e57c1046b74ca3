"""Rules of the section `hosts` and of what the provider's machines can do."""

from __future__ import annotations

from headway.clusterfile import groups
from headway.clusterfile.draft import FileDraft


def check_hosts(draft: FileDraft) -> None:
    """Checks the list of machines, and fields that do not suit the provider's machines."""
    hosts = draft.file.hosts
    if draft.is_intact("provider"):
        if hosts and draft.provider.creates_machines:
            draft.fault("hosts", "needs provider ssh", "give provider: ssh, or remove hosts")
        if draft.has_size:
            _enough_machines(draft)
        if draft.file.firewall.ssh_from and draft.provider.private_network:
            draft.fault("firewall", "needs provider ssh", "remove it: local machines have their own network")
        if draft.file.gpu.driver == "install" and draft.provider.boots_node_images:
            draft.fault("gpu.driver", "needs provider ssh", "remove it: local machines simulate their GPUs")
    heads = [index for index, host in enumerate(hosts) if host.role == "head"]
    most = draft.file.controllers if draft.is_intact("controllers") else len(heads)
    for index in heads[most:]:
        there = "is the second head" if most == 1 else "is the third head"
        hint = "a cluster has one head, or two with controllers: 2" if most == 1 else "a cluster has at most two heads"
        draft.fault(f"{draft.item('hosts', index)}.role", there, hint)
    nodes = [index for index, host in enumerate(hosts) if host.role == "node"]
    if (
        nodes
        and draft.is_intact("hosts", "controllers")
        and len(hosts) - len(nodes) < draft.file.controllers <= len(hosts)
    ):
        draft.fault(
            f"{draft.item('hosts', nodes[0])}.role",
            "leaves no machine for the head" if len(nodes) == len(hosts) else "leaves one machine for two heads",
            "remove role: node, or give role: head",
        )
    first: dict[tuple[str, int], int] = {}
    for index, host in enumerate(hosts):
        if host.sudo_password and host.user == "root":
            draft.fault(
                f"{draft.item('hosts', index)}.sudo_password",
                "user root needs no sudo",
                "give user, or remove sudo_password",
            )
        for key, address in (("address", host.address), ("jump.address", host.jump.address if host.jump else "")):
            if ":" in address:
                draft.fault(
                    f"{draft.item('hosts', index)}.{key}",
                    f"{address} is an IPv6 address",
                    "give an IPv4 address or a name that has one: the machines of a cluster use IPv4",
                )
        if first.setdefault((host.address.lower(), host.port), index) != index:
            draft.fault(draft.item("hosts", index), f"{host.address} is given twice", "remove one")


def _enough_machines(draft: FileDraft) -> None:
    have, total, most = len(draft.file.hosts), draft.total, draft.provider.max_machines
    if most is not None and total > most:
        draft.fault(
            "nodes",
            f"nodes + spares is {total}, and {draft.provider.name} has at most {most} machines",
            "use provider: ssh",
        )
    total = groups.listed_slots(draft.file)
    need = total + draft.file.controllers
    if not draft.provider.creates_machines and draft.is_intact("hosts", "controllers") and have < need:
        heads = "the head" if draft.file.controllers == 1 else "two heads"
        draft.fault(
            "hosts",
            f"lists {have} machines; {total} nodes and spares plus {heads} need {need}",
            f"add machines, {heads} first",
        )
