"""Measures rendering and differencing for 10,000 nodes: every file's text, then the ChangeSet when one file differs on
every node.

These are pure functions, so no machine is needed. The comparison is with 100 nodes: 100 times the nodes should cost
less than 100 times the time."""

from __future__ import annotations

import resource
import time

from headway.catalog.plans import load_catalogue
from headway.changes.cluster_changes import DesiredState, changeset
from headway.changes.machine_changes import DesiredMachine
from headway.cluster.desired_state import build_desired_state
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.observed_state import Observed, ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.site import Site

SECRETS = {"munge_key": "eA==", "jwt_key": "eA=="}
CHANGED = "/etc/hosts"


def address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def cluster_of(nodes: int) -> Cluster:
    """Returns a cluster of so many nodes."""
    hosts = [address(number) for number in range(1, nodes + 2)]
    spec = {"name": "big", "provider": "ssh", "plan": "h100-8", "nodes": nodes, "hosts": hosts}
    return resolve_cluster_file({**spec, "fabric": {"leaf_size": 32}}, load_catalogue({}), owner="ann")[0]


def site_of(cluster: Cluster) -> Site:
    """Returns the addresses and uids of the cluster."""
    addresses = {host.name: host.address for host in cluster.hosts}
    uids = {user.name: 20000 + index for index, user in enumerate(cluster.users)}
    return Site("10.0.0.0/8", "10.255.0.254", addresses[cluster.head], addresses, uids)


def as_wanted(desired: DesiredMachine, *, but: str = "") -> ObservedMachine:
    """Returns a machine on which everything is as it should be, except the content of file `but`."""
    files = {
        path: ObservedFile("old" if path == but else desired.digests[path], file.mode, file.owner, file.group, 0.0)
        for path, file in desired.files.items()
    }
    units = {unit.name: ObservedUnit(True, True, 1.0, 1, desired.loaded[unit.name]) for unit in desired.units}
    dirs = frozenset(path for path, *_ in (*desired.dirs, *desired.homes))
    return ObservedMachine(files, units, tuple(desired.files), dirs)


def observed(goal: DesiredState, site: Site) -> Observed:
    """Returns the facts of all machines of the cluster."""
    machines = {
        name: Machine(name, "big", address, MachineState.RUNNING, "ssh-ed25519 AAAA")
        for name, address in site.addresses.items()
    }
    # Separate objects for each node, as when 10,000 answers are parsed.
    seen = {slot.name: as_wanted(goal.roles["node"], but=CHANGED) for slot in goal.cluster.slots}
    seen[goal.cluster.head] = as_wanted(goal.roles["head"])
    return Observed(machines, seen, accounts=goal.accounts)


def measure(nodes: int) -> tuple[float, float, int]:
    """Returns (seconds to render, seconds to difference, number of changes)."""
    cluster = cluster_of(nodes)
    site = site_of(cluster)
    began = time.perf_counter()
    goal = build_desired_state(cluster, site, SECRETS)
    rendered = time.perf_counter() - began
    facts = observed(goal, site)
    began = time.perf_counter()
    changes = changeset(goal, facts)
    return rendered, time.perf_counter() - began, len(changes.changes)


def main() -> None:
    small = [measure(100) for _ in range(5)]
    render_100, change_100 = min(m[0] for m in small), min(m[1] for m in small)
    render_s, change_s, count = measure(10_000)
    print(f"10,000 nodes: render {render_s:.3f} s, ChangeSet of {count} changes {change_s:.3f} s")
    print(f"100 nodes: render {render_100:.4f} s, ChangeSet {change_100:.4f} s")
    print(f"memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    print(f"ratio: {(render_s + change_s) / (100 * (render_100 + change_100)):.2f} of 100 times the time for 100 nodes")


if __name__ == "__main__":
    main()
