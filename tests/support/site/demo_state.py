"""Puts the snapshots of `snapshots` into a server's state: its clusters, people, incidents and answers."""

from __future__ import annotations

import base64
import math
import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy import insert, select

from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.cluster import Cluster, Group, Partition, Slot
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.domain.teams import Team, User, UserLimits
from headway.errors import NotFound, Unreachable
from headway.jobs.logs.log_part import last_lines
from headway.schemas.clusters import ClusterOut, StatusOut
from headway.schemas.jobs import JobOut, LogFoundOut, LogLineOut, LogPartOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.schemas.nodes.nodes import NodeOut
from headway.schemas.submission.exec_commands import ExecIn, ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import summary_of
from headway.services.cluster_backend import SlurmReading
from headway.services.read_model.snapshot import Snapshot as Known
from headway.store.db import cluster_schema as t
from tests.support.clusters import builders
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers import server_fakes
from tests.support.site import (
    batches,
    fabric,
    ledger,
    models,
    notebooks,
    operations,
    pipelines,
    schedule,
    services,
    storage,
    sweeps,
    terminals,
    training_metrics,
    whatif,
)
from tests.support.site.snapshots import (
    CHECKS,
    TRAIN,
    Snapshot,
    broken,
    cluster,
    creating,
    head,
    losses,
    mixed,
    node,
    renamed,
    stale,
    training,
)

PLAN = replace(builders.H100, price_usd_per_node_hour=Decimal("23.92"))
LIMITS = UserLimits(gpus=32, submitted_jobs=200, recent_gpu_hours=Decimal(500))
TEAMS = (
    Team("vision", ("alice", "bob", "lena"), 3, per_user=LIMITS),
    Team("speech", ("carol", "olga", "ann"), 1, per_user=LIMITS),
)
USERS = tuple(User(name, (), (team.name,)) for team in TEAMS for name in team.users)


def answers() -> dict[str, Any]:
    """Returns the backend's answers, which show the state that was put."""
    return {
        "send_alerts": None,  # the weekly summary, by the alert channels
        "machines": lambda cluster: SHOWN[cluster.name].machines,
        "read": _read,
        "readiness_checks": lambda cluster: SHOWN[cluster.name].checks,
        "history": lambda cluster: (),
        "job": _job,
        "array_states": lambda cluster, job: ARRAY if job == ARRAY_JOB else {},
        "progress": lambda cluster, jobs: {},
        "query_metrics": metrics,
        "volume_space": storage.rooms,
        "quotas": storage.quotas,
        "shares": _shares,
        "job_runs": lambda cluster, job: (),
        "run_command": _ran,
        "run_on_terminal": terminals.prompt,
        "step_result_files": {},
        "submit": lambda cluster, request, user: SubmitOut(
            job_id=0,
            cluster=cluster.name,
            user=user,
            workdir="~",
            message=f"sbatch: Job 9 to start at {int(time.time()) + 840} using 8 processors on nodes demo-1-1 in partition train",
        ),
        "log_part": lambda cluster, job, before, lines, err: log_part(before, lines),
        "search_log": lambda cluster, job, text, err: log_search(text),
        "follow_log": (),
    }


def _ran(cluster: Cluster, ask: ExecIn, user: str) -> ExecOut:
    """Answers sacct with the stored script, and every other command with exit code 1."""
    if ask.argv[0] == "sacct":
        return ExecOut(code=0, stdout_b64=base64.b64encode(SCRIPT).decode())
    return ExecOut(code=1)


SCRIPT = b"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n#SBATCH --time=01:00:00\n\nsrun python train.py\n"
LOG = [f"step {step} loss {loss}" for step, loss in losses(420)]  # a training's log


def log_part(before: int | None, lines: int) -> LogPartOut:
    """Returns a window of the log, as the cluster's reader does."""
    data = "".join(f"{line}\n" for line in LOG).encode()
    end = len(data) if before is None else min(before, len(data))
    return last_lines(data[:end], 0, len(data), lines)


def log_search(text: str) -> LogFoundOut:
    """Returns the lines of the log that contain the text."""
    at, found = 0, []
    for number, line in enumerate(LOG, 1):
        if text.lower() in line.lower():
            found.append(LogLineOut(offset=at, line=number, text=line))
        at += len(line.encode()) + 1
    return LogFoundOut(found=found[:200])


_LINES = {
    "cpu": ("busy", "waiting for disks"), "memory": ("in use", "files kept"), "network": ("received", "sent"),
    "disk_io": ("read", "written"), "job_network": ("received", "sent"), "job_disk_io": ("read", "written"),
}  # fmt: skip


def metrics(
    cluster: Cluster, queries: Sequence[MetricQuery], start: float, end: float, step_s: int
) -> tuple[MetricRow, ...]:
    """Returns the metrics of a training: busy, with a pause now and then."""
    at = range(int(start), int(end) + 1, step_s)
    return tuple(
        MetricRow(query.key, query.line, labels, tuple((t, _figure(query.key, t, number)) for t in at))
        for query in queries
        for number, labels in _labels(cluster, query)
    )


def _labels(cluster: Cluster, query: MetricQuery) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (number of the line, its labels) of a query."""
    node, job = re.search(r'node="([^"]+)"', query.text), re.search(r'hpc_job="', query.text)
    every = [slot.name for slot in cluster.slots] if query.key == "use" else []
    nodes = every or [node[1]] if every or node else ["demo-1-1", "demo-1-2"] if job else [""]
    if query.key in _LINES:
        yield from enumerate({"line": line} for line in _LINES[query.key])
    elif query.key == "disk_space":
        yield from enumerate({"mountpoint": place} for place in ("/", "/scratch"))
    elif "by (node, gpu)" in query.text:
        yield from ((gpu, {"node": name, "gpu": str(gpu)}) for name in nodes for gpu in range(8))
    elif "by (node)" in query.text:
        yield from enumerate({"node": name} for name in nodes)
    else:
        yield from ((0, {}) for _ in nodes)


def _figure(key: str, at: int, line: int) -> float:
    noise = math.sin(at / 97 + line * 2.1) + math.sin(at / 31 + line)
    busy = 0.0 if at % 1500 < 90 else 1.0
    if "utilisation" in key or key == "use":
        return max(0.0, busy * (93 + 2.2 * noise))
    if key == "gpu_memory":
        return 61_000 + 400 * line + 300 * noise
    if "power" in key:
        return (0.25 + 0.75 * busy) * (640 + 9 * line + 12 * noise) * (1 if key == "gpu_power" else 32)
    if "temperature" in key:
        return 44 + 18 * busy + line * 1.3 + noise
    if key in ("memory", "job_memory"):
        return 190_000 + 60_000 * line + 4_000 * noise
    if key in ("cpu", "disk_space"):
        return (64 if line == 0 else 12) + 3 * noise
    if key in _LINES or key == "job_cpu":
        return max(0.0, busy * (40 + 25 * line + 9 * noise))
    return {"gpu_nvlinks": 18.0, "machines_up": 5.0}.get(key, 0.0)


SHOWN: dict[str, Known] = {}  # by cluster; for one server at a time


def _read(cluster: Cluster) -> SlurmReading:
    shown = SHOWN[cluster.name]
    if shown.stale:
        raise Unreachable(shown.stale)
    return SlurmReading(shown.nodes, shown.jobs, reservations=shown.reservations)


def _shares(cluster: Cluster) -> tuple[AccountShare, ...]:
    if SHOWN[cluster.name].stale:
        raise Unreachable(SHOWN[cluster.name].stale)
    even, used = 1 / len(cluster.teams), (0.61, 0.27, 0.12)
    found = zip(cluster.teams, (*used, *(0.0 for _ in cluster.teams)), strict=False)
    return tuple(AccountShare(team.name, even, part, 1 - part, 2140.0 * part) for team, part in found)


def _job(cluster: Cluster, number: int) -> JobState:
    for job in SHOWN[cluster.name].jobs:
        if job.id == number:
            return job
    raise NotFound(f"{cluster.name} has no job {number}")


async def put(state: AppState, work: FakeBackend, snapshot: Snapshot | None, name: str = "demo") -> None:
    """Stores the cluster's row and its last reading; None removes it."""
    if snapshot is None:
        await state.store.clusters.delete(name)
        state.live.forget_cluster(name)
        return
    out = snapshot.status.cluster
    nodes = [n for n in snapshot.status.nodes if n.role != "head"]
    cluster = _resolved(work, name, nodes, out)
    document = server_fakes.document(name, nodes=cluster.nodes, spares=cluster.spares).model_dump()
    known = "ready" if out.state == "degraded" else out.state
    await state.store.clusters.save(name, document, summary=summary_of(cluster), state=known, owner="ann")
    await _put_incidents(state, name, snapshot.incidents)
    shown = SHOWN[name] = Known(
        name,
        tuple(_node_state(n, n.role == "spare") for n in nodes),
        tuple(_job_state(j, snapshot.status.nodes) for j in snapshot.jobs),
        tuple(_machine(name, n) for n in snapshot.status.nodes if n.machine),
        tuple(ReadinessCheck(c.name, c.ok, c.message) for c in snapshot.status.checks),
        {j.id: j.progress for j in snapshot.jobs if j.progress},
        out.as_of,
        out.stale,
    )
    state.live.store_snapshot(shown)
    state.live._recent_events[name] = deque(snapshot.recent_events)
    state.live.notify_row_changed(name)


def _resolved(work: FakeBackend, name: str, nodes: Sequence[NodeOut], out: ClusterOut) -> Cluster:
    spares = sum(n.role == "spare" for n in nodes) if nodes else out.spares
    leaf_size = max(Counter(n.leaf for n in nodes).values(), default=4)
    slots = tuple(n.name for n in nodes)
    more: dict[str, Any] = {"spares": spares, "leaf_size": leaf_size, "plan": PLAN, "teams": TEAMS, "users": USERS}
    more["partitions"] = (
        Partition("train", slots, True, 1, 604800, 86400, (), False, 0, ()),
        Partition("debug", slots[:1], False, 2, 3600, 600, (), False, 0, ()),
    )
    more["storage"] = storage.STORAGE
    more["mlflow"] = name == "demo"
    work.clusters[name] = more
    return builders.cluster(len(nodes) - spares if nodes else out.nodes, name=name, **more)


def _node_state(n: NodeOut, spare: bool) -> NodeState:
    held = tuple(gpu.index for gpu in n.gpus if gpu.job_id is not None)
    return NodeState(
        n.name, tuple(n.states), n.reason, len(n.gpus), len(held), n.cpus, n.cpus_used, n.memory_mib,
        n.memory_mib * len(held) // 12, tuple(n.partitions), "headway_spares" if spare else "", 1,
    )  # fmt: skip


def _job_state(j: JobOut, nodes: Sequence[NodeOut]) -> JobState:
    held = {n.name: tuple(g.index for g in n.gpus if g.job_id == j.id) for n in nodes}
    return builders.job(
        j.id, j.state, name=j.name, user=j.user, account=j.account, partition=j.partition, reason=j.reason,
        nodes=tuple(j.nodes) or tuple(n for n, gpus in held.items() if gpus), node_count=j.node_count, gpus=j.gpus,
        submit_time=j.submit_time, start_time=j.start_time, end_time=j.end_time, time_limit_s=j.time_limit_s,
        restarts=j.restarts, gpu_indexes={n: gpus for n, gpus in held.items() if gpus},
    )  # fmt: skip


def _machine(cluster: str, n: NodeOut) -> Machine:
    return Machine(n.name, cluster, n.address, MachineState(n.machine), "ssh-ed25519 AAAA")


async def _put_incidents(state: AppState, name: str, incidents: Sequence[IncidentOut]) -> None:
    """Stores each incident with the course that its times describe."""
    async with state.store.database.write() as db:
        for incident in incidents:
            if (await db.execute(select(t.incidents.c.number).where(t.incidents.c.number == incident.number))).first():
                continue
            values = incident.model_dump(
                include={"number", "node", "what", "action", "state", "opened_at", "drained", "score"}
            )
            await db.execute(
                insert(t.incidents).values(
                    cluster=name, last_signal_at=incident.fault_at, fault_at=incident.fault_at, **values
                )
            )
            for seq, (after, word, text, evidence) in enumerate(_course(incident), 1):
                at = incident.fault_at + after
                row = {
                    "incident": incident.number,
                    "seq": seq,
                    "at": at,
                    "state": word,
                    "text": text,
                    "evidence": evidence,
                }
                await db.execute(insert(t.incident_steps).values(actor="headway", **row))
            for job in incident.jobs:
                moments = {
                    key: incident.fault_at + after if after is not None else None
                    for key, after in (("running_at", incident.times.running_s), ("step_at", incident.times.step_s))
                }
                requeued = incident.fault_at + (incident.times.requeue_s or 1)
                row = {"incident": incident.number, "job": job.job, "requeued_at": requeued, **moments}
                await db.execute(insert(t.incident_jobs).values(**row))


def _course(one: IncidentOut) -> list[tuple[float, str, str, dict[str, object]]]:
    times, moved = one.times, [job.job for job in one.jobs]
    said = {"text": "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.", "gpu": 3, "xid": 79}
    steps: list[tuple[float | None, str, str, dict[str, object]]] = [
        (times.detect_s, "seen", one.what, said),
        (times.drain_s, "draining", f"drained: incident {one.number}", {}),
        (times.requeue_s, "jobs moved", f"jobs requeued: {', '.join(map(str, moved))}", {"requeued": moved}),
        ((times.requeue_s or 1) + 9, "repairing", "its machine is restarted", {"try": "reboot"}),
        (times.closed_s and times.closed_s - 20, "testing", "tests begin", {"tests": True}),
        (
            times.closed_s,
            one.state,
            "tests passed; back in service",
            {"passed": ["daemons", "gpus", "memory", "burn", "copy"]},
        ),
    ]
    return [(after, word, text, more) for after, word, text, more in steps if after is not None]


async def furnish(state: AppState, work: FakeBackend) -> None:
    """Creates clusters in several states, as a server in use has them."""
    work.clusters["lab"] = {"plan": PLAN}  # the plan that /new begins with
    for person, role in (("ann", "admin"), ("alice", "member"), ("victor", "viewer")):
        await state.store.people.set_role(person, role)
    for person, label, scopes, only in (
        ("alice", "laptop", ("all",), ""),
        ("alice", "CI of the vision team", ("submit",), "demo"),
        ("ann", "Grafana", ("read",), ""),
    ):
        await state.store.tokens.create(person, label=label, days=90, scopes=scopes, cluster=only)
    for who, action, target, result, detail in (
        ("ann", "apply", "demo", "ok", {"confirmed": True}),
        ("alice", "submit", "demo", "ok", {"job": 104, "user": "alice"}),
        ("olga", "node.drain", "demo/demo-1-2", "ok", {"reason": "the fan is loud; a new one comes at four"}),
        ("olga", "node.return", "demo/demo-1-2", "ok", {}),
        ("victor", "cancel", "demo/104", "refused", {"why": "victor is a viewer and may not cancel job 104"}),
        ("", "signin", "", "refused", {"how": "link", "why": "this sign-in link was used already or is too old"}),
        ("olga", "bring_back", "demo/3", "failed", {"why": "the node's memory test failed"}),
    ):
        await state.store.audit.record(who, action, target, detail, address="192.0.2.17", result=result)
    await put(state, work, broken(), "demo")
    SHOWN["demo"] = schedule.planned(SHOWN["demo"])
    state.live.store_snapshot(SHOWN["demo"])
    training_metrics.put_metrics(state, "demo", 104)
    await training_metrics.put_trainings(state, "demo")
    await put(state, work, renamed(stale(mixed()), "prod"), "prod")
    await put(state, work, renamed(creating(), "half"), "half")
    await put_elastic(state, work)
    await operations.put(state.store)
    await notebooks.put(state.store, work, TRAIN, 105)
    await sweeps.put(state.store)
    await pipelines.put(state.store)
    await services.put(state)
    await batches.put(state.store)
    await models.put(state)
    await ledger.put(state, state.store)
    await storage.put(state.store)
    await fabric.put(state.store)
    await whatif.put(state.store)


GROUPS = (
    Group("gpu", PLAN, 2, 4, 1, tuple(f"grow-gpu-1-{i}" for i in range(1, 6)), price_usd_per_node_hour=Decimal("31.2")),
    Group(
        "cheap", PLAN, 2, 8, 0, tuple(f"grow-cheap-2-{i}" for i in range(1, 9)), spot=True,
        price_usd_per_node_hour=Decimal("9.5"),
    ),
    Group(
        "night", PLAN, 0, 6, 0, tuple(f"grow-night-3-{i}" for i in range(1, 7)), idle_s=600,
        price_usd_per_node_hour=Decimal("31.2"),
    ),
)  # fmt: skip


ARRAY_JOB = 300
ARRAY = {"0": "COMPLETED", "1": "COMPLETED", "2": "FAILED", "3": "RUNNING", "4": "PENDING", "5": "CANCELLED"}


def array_tasks() -> tuple[JobState, ...]:
    """Returns an array with tasks in all states."""
    return tuple(
        builders.job(
            ARRAY_JOB + int(task), state, name="evaluate", user="alice", account="vision", gpus=1, node_count=1,
            array_job_id=ARRAY_JOB, array_task=task, nodes=("grow-gpu-1-1",) if state == "RUNNING" else (),
        )
        for task, state in ARRAY.items()
    )  # fmt: skip


async def put_elastic(state: AppState, work: FakeBackend) -> None:
    """Puts a cluster with elastic groups: one scaled by people, one of spot machines of which one is missing, one
    that scales by itself."""
    slots = tuple(
        Slot(slot, f"leaf{leaf}", number, group.name)
        for leaf, group in enumerate(GROUPS, 1)
        for number, slot in enumerate(group.slots, 1)
    )
    names = ("gpu-1-1", "gpu-1-2", "gpu-1-5", "cheap-2-1", "night-3-1")
    there = [node(f"grow-{name}", f"leaf{name[-3]}", held=[TRAIN] * 8, partitions=["train"]) for name in names]
    there.insert(3, node("grow-cheap-2-2", "leaf2", machine="", states=["DOWN"], usable=False))
    there[1] = node(
        "grow-gpu-1-2", "leaf1", states=["IDLE", "DRAIN"], usable=False, reason=storage.LOST, partitions=["train"]
    )
    there[2] = node("grow-gpu-1-5", "leaf1", role="spare", partitions=["train"])
    out = cluster(name="grow", gpus_used=32, jobs_pending=0)
    shown = Snapshot(StatusOut(cluster=out, checks=CHECKS, nodes=[head(), *there]), (training(["grow-gpu-1-1"]),))
    await put(state, work, shown, "grow")
    SHOWN["grow"] = replace(SHOWN["grow"], jobs=(*SHOWN["grow"].jobs, *array_tasks()))
    state.live.store_snapshot(SHOWN["grow"])
    whole = replace(
        builders.cluster(1, 0, name="grow", teams=TEAMS, users=USERS, storage=storage.STORAGE),
        slots=slots,
        groups=GROUPS,
    )
    work.whole["grow"] = whole
    document = server_fakes.document("grow", nodes=4, spares=1).model_dump()
    await state.store.clusters.save("grow", document, summary=summary_of(whole), state="ready", owner="ann")
