"""Builders of small resolved clusters: everything has a default, so that a test names only what it is about."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from headway.catalog.providers import LOCAL
from headway.clusterfile.models.health import HealthPart
from headway.clusterfile.resolve import health_settings
from headway.domain.cluster import MAIN_GROUP, Cluster, Group, Health, Partition, Plan, Slot, Switch
from headway.domain.machines.gpu_parts import WHOLE
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.site import Site
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.domain.storage.folders import StorageFolders
from headway.domain.teams import Team, User
from headway.schemas.clusters import ClusterOut
from headway.store import Store, open_store
from headway.store.db.sealing import KEY_FILE

H100 = Plan("h100-8", "h100", 8, 81559, 128, 2048000, Decimal("31.20"), "NVIDIA H100 80GB HBM3")


_migrated: dict[str, bytes] = {}  # files of an empty database, by name
_compiled: list[tuple[Any, Any]] = []


async def store(folder: Path, clock: Callable[[], float] = time.time) -> Store:
    """Returns a store in `folder`, on a copy of the empty database that this process migrated once."""
    if not _migrated:
        with tempfile.TemporaryDirectory() as empty:
            await (await open_store(Path(empty))).close()
            _migrated.update({name: (Path(empty) / name).read_bytes() for name in ("headway.db", KEY_FILE)})
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _migrated.items():
        (folder / name).write_bytes(content)
    made = await open_store(folder, clock=clock)
    _shared(made)
    return made


def _shared(store: Store) -> None:
    """Shares SQLAlchemy's cache of compiled statements among all stores, because the tests of a process run the same
    statements on thousands of databases."""
    engine: Any = store.database.engine.sync_engine
    if not _compiled:
        _compiled.append((engine.dialect, engine._compiled_cache))
    engine.dialect, engine._compiled_cache = _compiled[0]


def question_of(given: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns the request that node/user_helper received on standard input, and the data after it."""
    line, _, data = given.partition(b"\n")
    return json.loads(line)["ask"], data


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0  # unix seconds

    def __call__(self) -> float:
        return self.now


def cluster(nodes: int = 4, spares: int = 1, leaf_size: int = 4, **others: Any) -> Cluster:
    """Returns a cluster of 8-GPU nodes in slots under leaf switches of `leaf_size` nodes; `others` replaces any
    field."""
    name = others.pop("name", "lab")
    slots = tuple(
        Slot(f"{name}-{i // leaf_size + 1}-{i % leaf_size + 1}", f"leaf{i // leaf_size + 1}", i + 1)
        for i in range(nodes + spares)
    )
    leaves: dict[str, list[str]] = {}
    for slot in slots:
        leaves.setdefault(slot.leaf, []).append(slot.name)
    switches = tuple(Switch(leaf, nodes=tuple(names)) for leaf, names in leaves.items())
    if len(switches) > 1:
        switches = (*switches, Switch("spine", children=tuple(leaves)))
    plan = others.pop("plan", H100)
    names = tuple(slot.name for slot in slots)
    group = Group(
        MAIN_GROUP,
        plan,
        nodes,
        nodes,
        spares,
        names,
        price_usd_per_node_hour=plan.price_usd_per_node_hour,
        parts=others.pop("parts", WHOLE),
    )
    fields: dict[str, Any] = {
        "provider": LOCAL,
        "image": "debian13",
        "slurm_version": "24.11",
        "groups": (group,),
        "storage": StorageFolders(),
        "partitions": (Partition("train", tuple(s.name for s in slots), True, 1, 604800, 86400, (), False, 0, ()),),
        "teams": (Team("default", ("alice",), 1),),
        "users": (User("alice", (), ("default",), admin=True),),
        "health": health(),
    }
    fields.update(others)
    return Cluster(
        name=name,
        slots=slots,
        switches=switches if len(switches) > 1 else (),
        **fields,
    )


def health(**changes: Any) -> Health:
    """Returns the cluster file's default settings for faults, with these changes."""
    return replace(health_settings(HealthPart()), **changes)


def site(of: Cluster) -> Site:
    """Returns a site with an address for the head and each slot."""
    addresses = {
        of.head: "10.9.0.10",
        **{slot.name: f"10.9.{slot.number // 200}.{slot.number % 200 + 11}" for slot in of.slots},
    }
    return Site("10.9.0.0/16", "10.9.0.1", "10.9.0.10", addresses, {u.name: 20000 + i for i, u in enumerate(of.users)})


def machine(name: str, state: MachineState = MachineState.RUNNING) -> Machine:
    return Machine(name, "lab", "10.9.0.9", state, "ssh-ed25519 AAAA")


def node(name: str, *states: str, reason: str = "", cpus_used: int = 0) -> NodeState:
    """Returns a node as Slurm reports it, idle unless states are given."""
    return NodeState(name, states or ("IDLE",), reason, 8, 0, 128, cpus_used, 2048000, 0, ("train",), boot_time=1)


def job(number: int, state: str = "RUNNING", **others: Any) -> JobState:
    """Returns a job as Slurm reports it; `others` replaces any field."""
    fields: dict[str, Any] = {
        "name": "train",
        "user": "alice",
        "account": "default",
        "partition": "train",
        "reason": "",
        "nodes": (),
        "node_count": 1,
        "gpus": 8,
        "submit_time": 1,
        "start_time": 2,
        "end_time": 0,
        "time_limit_s": 3600,
        "restarts": 0,
        "stdout": "/home/alice/out",
        "stderr": "/home/alice/out",
        "command": "train.sbatch",
        "workdir": "/home/alice",
    }
    fields.update(others)
    return JobState(id=number, state=state, **fields)


def cluster_out(**others: Any) -> ClusterOut:
    """Returns the server's answer about a cluster of four nodes and a spare."""
    fields: dict[str, Any] = {
        "name": "lab",
        "state": "ready",
        "provider": "local",
        "image": "debian13",
        "slurm_version": "24.11",
        "plan": "h100-8",
        "gpu_type": "h100",
        "nodes": 4,
        "spares": 1,
        "gpus": 40,
        "simulated_gpus": True,
        "as_of": 1000.0,
    }
    return ClusterOut.model_validate({**fields, **others})


def open_to_all(folder: Path) -> Path:
    """Makes a test's folder readable for other users, because pytest closes the folders above it, and returns it."""
    above = folder.parents
    ours = [part for part in above if part.name.startswith(("pytest-", "popen-"))]
    for part in (folder, *ours):
        part.chmod(0o755)
    return folder
