"""The clusters of the golden files: together they cover every kind of file and both Slurm versions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from headway.catalog.mig_profiles import lay_out
from headway.catalog.providers import LOCAL, SSH
from headway.domain.cluster import MAIN_GROUP, Cluster, Firewall, Group, Partition, Plan, Slot, Switch
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.domain.machines.image_signatures import SignaturePolicy, SignatureRule
from headway.domain.machines.site import OwnedSite, Site
from headway.domain.machines.survey import DetectedGpu, DetectedHardware
from headway.domain.storage.folders import Dataset, StorageFolders
from headway.domain.teams import Team, User
from headway.render.files_by_role import render_files
from tests.support.clusters import builders

H100 = Plan("h100-8", "h100", 8, 81559, 128, 2_000_000, Decimal("24"), "NVIDIA H100 80GB HBM3")
CPU = Plan("cpu-64", "", 0, 0, 64, 256_000, Decimal("3"))
DAY_S = 86400


def slots(name: str, leaves: int, per_leaf: int) -> tuple[Slot, ...]:
    """Returns the slots of `leaves` leaf switches with `per_leaf` nodes each."""
    return tuple(
        Slot(f"{name}-{leaf}-{place}", f"leaf{leaf}", (leaf - 1) * per_leaf + place)
        for leaf in range(1, leaves + 1)
        for place in range(1, per_leaf + 1)
    )


def tree(places: tuple[Slot, ...]) -> tuple[Switch, ...]:
    """Returns the leaf switches and their spine; () for a single leaf."""
    leaves: dict[str, list[str]] = {}
    for place in places:
        leaves.setdefault(place.leaf, []).append(place.name)
    if len(leaves) == 1:
        return ()
    switches = [Switch(leaf, tuple(names)) for leaf, names in leaves.items()]
    return (*switches, Switch("spine", (), tuple(leaves)))


def group(plan: Plan, names: tuple[str, ...], spares: int = 0, name: str = MAIN_GROUP, **more: Any) -> Group:
    """Returns a node group; all its slots have machines unless `more` contains `nodes`."""
    most = len(names) - spares
    fields = {"nodes": most, "price_usd_per_node_hour": plan.price_usd_per_node_hour, **more}
    return Group(name, plan, most=most, spares=spares, slots=names, **fields)


def gpu_cluster(leaves: int = 2, per_leaf: int = 2) -> Cluster:
    places = slots("lab", leaves, per_leaf)
    names = tuple(place.name for place in places)
    return Cluster(
        name="lab",
        health=builders.health(),
        provider=LOCAL,
        image="debian13",
        slurm_version="24.11",
        groups=(group(H100, names, 1),),
        slots=places,
        switches=tree(places),
        storage=StorageFolders(datasets=(Dataset("tiny", "/data/tiny", "/datasets/tiny"),)),
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
    """Returns a site with an address for each head and slot; `changes` replaces any field."""
    addresses = {name: f"10.87.3.{10 - place}" for place, name in enumerate(cluster.heads)}
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
        gpu_devices=cluster.largest_plan.gpus if cluster.simulated_gpus else 0,
        real_cpus=4,
        real_memory_mib=16000,
        host_keys={name: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{name}" for name in addresses},
    )
    return replace(site, **changes)  # type: ignore[arg-type]


def cpu_cluster() -> Cluster:
    """Returns a cluster of owned machines with Debian 12's Slurm, one switch and one team."""
    places = slots("old", 1, 2)
    names = tuple(place.name for place in places)
    return Cluster(
        name="old",
        health=builders.health(),
        provider=SSH,
        image="debian12",
        slurm_version="22.05",
        groups=(group(CPU, names),),
        slots=places,
        switches=(),
        storage=StorageFolders(),
        partitions=(Partition("batch", names, True, 1, 2 * DAY_S, None, (), False, 0, ()),),
        teams=(Team("default", ("alice",), 1),),
        users=(User("alice", ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIalice alice@laptop",), ("default",), True),),
        containers="enroot",
    )


def own_site(cluster: Cluster, **changes: object) -> Site:
    """Returns the site of machines without a shared folder, so that the head exports one; one has less memory than
    the other."""
    found = DetectedHardware(64, 2, 32, 1, 257_000, 900_000)
    own = OwnedSite(
        {"ops": ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIops",), "root": ("",)},
        (22,),
        {},
        ("10.87.3.1",),
        ("/home", "/scratch"),
    )
    here = {
        "found": {name: replace(found, memory_mib=257_000 + 8_000 * n) for n, name in enumerate(cluster.slot_names)},
        "own": own,
        "departed": (),
        "real_cpus": 0,
        "real_memory_mib": 0,
        "simulated_gpus": False,
        "gpu_devices": 0,
    }
    return site_of(cluster, **{**here, **changes})


def own_gpu_cluster() -> Cluster:
    made = gpu_cluster(1, 2)
    return replace(
        made,
        provider=SSH,
        mail_relay="",
        groups=(group(H100, made.slot_names),),
        firewall=Firewall(("10.0.0.0/8", "192.0.2.7")),
        image_signatures=SignaturePolicy(
            "reject",
            (
                SignatureRule("nvcr.io/nvidia", "accept"),
                SignatureRule("registry.example.org:5000/team", "signed", "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0K"),
            ),
        ),
    )


def own_gpu_site() -> Site:
    """Returns a site that differs from its plan of 8 H100: one machine has them, half at each socket, the other has
    2 A100."""
    cluster = own_gpu_cluster()
    sides = (tuple(range(32)), tuple(range(32, 64)))
    h100 = tuple(DetectedGpu("NVIDIA H100 80GB HBM3", 81559, f"0000:{n}b:00.0", sides[n // 4], n) for n in range(8))
    a100 = tuple(DetectedGpu("NVIDIA A100-SXM4-40GB", 40960, f"0000:0{n}:00.0", (), n) for n in range(2))
    found = {
        cluster.slot_names[0]: DetectedHardware(128, 2, 32, 2, 2_063_000, 3_000_000, h100),
        cluster.slot_names[1]: DetectedHardware(64, 1, 64, 1, 515_000, 0, a100),
    }
    own = OwnedSite({"root": ("",)}, (22, 2222), {cluster.head: "head.example.org"}, ("10.87.3.1",))
    return own_site(cluster, found=found, own=own)


def old_gpu_cluster() -> Cluster:
    return replace(gpu_cluster(1, 2), slurm_version="22.05", image="debian12")


def grouped_cluster() -> Cluster:
    """Returns a cluster with three groups: one with slots without a machine, a cheap one, and an elastic one without
    GPUs."""
    places = tuple(
        Slot(f"mix-{name}-1-{place}", f"{name}-leaf1", number, name)
        for number, (name, place) in enumerate([("gpu", 1), ("gpu", 2), ("cheap", 1), ("cpu", 1)], start=1)
    )
    names = tuple(place.name for place in places)
    return replace(
        gpu_cluster(1, 1),
        name="mix",
        groups=(
            group(H100, names[:2], name="gpu", nodes=1),
            group(H100, names[2:3], name="cheap", spot=True, price_usd_per_node_hour=Decimal("9.5")),
            group(CPU, names[3:], name="cpu", nodes=0, idle_s=600),
        ),
        slots=places,
        switches=tree(places),
        storage=StorageFolders(),
        partitions=(
            Partition("train", names, True, 1, 7 * DAY_S, DAY_S, (), False, 0, ()),
            Partition("cpu", names[3:], False, 1, None, None, (), False, 0, ()),
        ),
    )


def two_heads_cluster() -> Cluster:
    return replace(gpu_cluster(1, 2), controllers=2)


def own_two_heads_cluster() -> Cluster:
    made = replace(own_gpu_cluster(), controllers=2)
    words = Dataset("words", f"{made.dataset_store_folder}/versions/words", "/datasets/words", versioned=True)
    return replace(made, storage=StorageFolders(datasets=(words,), state="/shared/headway"))


def own_two_heads_site() -> Site:
    cluster, before = own_two_heads_cluster(), own_gpu_site()
    return replace(before, addresses={**before.addresses, cluster.heads[1]: "10.87.3.9"})


def parts_cluster() -> Cluster:
    """Returns local clusters' groups with MIG instances, shards, MPS and whole GPUs. One node of the MIG group still has
    whole GPUs."""
    leaf = slots("lab", 1, 5)
    names = tuple(place.name for place in leaf)
    instances = lay_out(H100, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2})
    return replace(
        gpu_cluster(),
        groups=(
            group(H100, names[:2], name="mig", parts=GpuParts(mig=instances)),
            group(H100, names[2:3], name="shards", parts=GpuParts(shards=8)),
            group(H100, names[3:4], name="mps", parts=GpuParts(mps=True)),
            group(H100, names[4:], name="whole"),
        ),
        slots=tuple(
            replace(place, group=name)
            for place, name in zip(leaf, ("mig", "mig", "shards", "mps", "whole"), strict=True)
        ),
        switches=(),
        partitions=(
            Partition("train", names[4:], True, 1, 7 * DAY_S, DAY_S, (), False, 60, ()),
            Partition("small", names[:2], False, 1, 7 * DAY_S, DAY_S, (), False, 60, ()),
            Partition("shared", names[2:4], False, 1, 7 * DAY_S, DAY_S, (), False, 60, ()),
        ),
    )


def parts_site() -> Site:
    """Returns the site of `parts_cluster` with one node whose GPUs are not divided yet."""
    cluster = parts_cluster()
    return site_of(cluster, parts_now={cluster.slot_names[1]: WHOLE})


def cases() -> dict[str, tuple[Cluster, Site]]:
    """Returns the golden cases: name -> cluster and site."""
    gpu, cpu, old = gpu_cluster(), cpu_cluster(), old_gpu_cluster()
    mixed = grouped_cluster()
    old_mixed = replace(mixed, slurm_version="22.05", image="debian12")
    here = (mixed.slot_names[0], mixed.slot_names[2])
    return {
        "local-groups-24.11": (mixed, site_of(mixed, departed=(), members=here)),
        "local-groups-22.05": (old_mixed, site_of(old_mixed, departed=(), members=here)),
        "local-gpus-24.11": (gpu, site_of(gpu)),
        "local-parts-24.11": (parts_cluster(), parts_site()),
        "local-two-heads-24.11": (two_heads_cluster(), site_of(two_heads_cluster())),
        "local-gpus-22.05": (old, site_of(old)),
        "own-cpus-22.05": (cpu, own_site(cpu)),
        "own-gpus-24.11": (own_gpu_cluster(), own_gpu_site()),
        "own-two-heads-24.11": (own_two_heads_cluster(), own_two_heads_site()),
    }


def slurm_conf(cluster: Cluster, site: Site | None = None) -> str:
    """Returns slurm.conf as the head gets it."""
    return render_files(cluster, site or site_of(cluster))["head"]["/etc/slurm/slurm.conf"].text
