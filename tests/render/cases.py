"""Clusters that the golden files show: between them every kind of file and both Slurm versions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.domain.cluster import (
    Cluster,
    Dataset,
    Partition,
    Plan,
    Site,
    Slot,
    Storage,
    Switch,
    Team,
    User,
)

H100 = Plan("h100-8", "h100", 8, 81559, 128, 2_000_000, Decimal("24"), "NVIDIA H100 80GB HBM3")
CPU = Plan("cpu-64", "", 0, 0, 64, 256_000, Decimal("3"))
DAY_S = 86400


def slots(name: str, leaves: int, per_leaf: int) -> tuple[Slot, ...]:
    return tuple(
        Slot(f"{name}-{leaf}-{place}", f"leaf{leaf}", (leaf - 1) * per_leaf + place)
        for leaf in range(1, leaves + 1)
        for place in range(1, per_leaf + 1)
    )


def tree(places: tuple[Slot, ...]) -> tuple[Switch, ...]:
    leaves: dict[str, list[str]] = {}
    for place in places:
        leaves.setdefault(place.leaf, []).append(place.name)
    if len(leaves) == 1:
        return ()
    switches = [Switch(leaf, tuple(names)) for leaf, names in leaves.items()]
    return (*switches, Switch("spine", (), tuple(leaves)))


def gpu_cluster(leaves: int = 2, per_leaf: int = 2) -> Cluster:
    places = slots("lab", leaves, per_leaf)
    names = tuple(place.name for place in places)
    return Cluster(
        name="lab",
        provider="local",
        image="debian13",
        slurm_version="24.11",
        plan=H100,
        nodes=len(places) - 1,
        spares=1,
        slots=places,
        switches=tree(places),
        storage=Storage(datasets=(Dataset("tiny", "/data/tiny", "/datasets/tiny"),)),
        partitions=(
            Partition("train", names, True, 1, 7 * DAY_S, DAY_S, (), True, 60, ()),
            Partition("debug", names[:1], False, 1, 7200, None, (), True, 60, (), {"MaxNodes": "1"}),
            Partition("urgent", names, False, 2, None, DAY_S, ("train", "debug"), False, 0, ("vision",)),
        ),
        teams=(Team("vision", ("alice",), 60), Team("speech", ("carol",), 40)),
        users=(
            User("alice", ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIalice alice@laptop",), ("vision",), True),
            User("carol", (), ("speech",)),
        ),
        slurm={"priorityweightage": "2000", "MaxStepCount": "50000"},
        mail_relay="10.87.3.1:2525",
        containers="builtin",
    )


def site_of(cluster: Cluster, **changes: object) -> Site:
    addresses = {cluster.head: "10.87.3.10"}
    for number, name in enumerate(cluster.slot_names, 11):
        addresses[name] = f"10.{87 + number // 65536}.{3 + number // 256 % 250}.{number % 256}"
    site = Site(
        subnet="10.87.3.0/24",
        gateway="10.87.3.1",
        head_address="10.87.3.10",
        addresses=addresses,
        uids={user.name: 20000 + n for n, user in enumerate(cluster.users)} | {"bob": 20099},
        departed=("bob",),
        simulated_gpus=cluster.simulated_gpus,
        gpu_devices=cluster.plan.gpus if cluster.simulated_gpus else 0,
        real_cpus=4,
        real_memory_mib=16000,
        host_keys={name: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{name}" for name in addresses},
    )
    return replace(site, **changes)  # type: ignore[arg-type]


def cpu_cluster() -> Cluster:
    """Machines one owns, with Debian 12's Slurm, one switch, one team."""
    places = slots("old", 1, 2)
    names = tuple(place.name for place in places)
    return Cluster(
        name="old",
        provider="ssh",
        image="debian12",
        slurm_version="22.05",
        plan=CPU,
        nodes=2,
        spares=0,
        slots=places,
        switches=(),
        storage=Storage(),
        partitions=(Partition("batch", names, True, 1, 2 * DAY_S, None, (), False, 0, ()),),
        teams=(Team("default", ("alice",), 1),),
        users=(User("alice", ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIalice alice@laptop",), ("default",), True),),
        containers="enroot",
    )


def old_gpu_cluster() -> Cluster:
    return replace(gpu_cluster(1, 2), slurm_version="22.05", image="debian12")


def cases() -> dict[str, tuple[Cluster, Site]]:
    gpu, cpu, old = gpu_cluster(), cpu_cluster(), old_gpu_cluster()
    return {
        "local-gpus-24.11": (gpu, site_of(gpu)),
        "local-gpus-22.05": (old, site_of(old)),
        "own-cpus-22.05": (cpu, site_of(cpu, departed=(), real_cpus=64, real_memory_mib=257_000)),
    }
