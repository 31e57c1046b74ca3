"""Domain and store -> wire. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from headway.api.live import Snapshot
from headway.domain.change import ASK_FROM, Change, ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.hostlist import compress
from headway.domain.jobstate import RUNNING, WAITING
from headway.domain.live import Check, JobState, NodeState
from headway.errors import Fault
from headway.jobs.words import why
from headway.store import ClusterRow, Event, Operation
from headway.wire.schemas import (
    ChangeOut,
    ChangeSetOut,
    CheckOut,
    ClusterOut,
    ErrorOut,
    EventOut,
    FaultOut,
    GpuOut,
    JobOut,
    NodeOut,
    OperationOut,
    ProgressOut,
)


def summary_of(cluster: Cluster) -> dict[str, Any]:
    """What lists show of a cluster, kept in its row."""
    return {
        "provider": cluster.provider,
        "image": cluster.image,
        "slurm_version": cluster.slurm_version,
        "plan": cluster.plan.name,
        "gpu_type": cluster.plan.gpu_type,
        "nodes": cluster.nodes,
        "spares": cluster.spares,
        "gpus": cluster.nodes * cluster.plan.gpus,
        "simulated_gpus": cluster.simulated_gpus,
        "price_usd_per_hour": price(cluster),
    }


def price(cluster: Cluster) -> str:
    """Nodes and spares at the plan's price, in USD an hour."""
    total: Decimal = cluster.plan.price_usd_per_node_hour * (cluster.nodes + cluster.spares)
    return f"{total:.2f}"


def cluster_out(row: ClusterRow, snapshot: Snapshot) -> ClusterOut:
    known = {"provider": "", "image": "", "slurm_version": "", "plan": "", "gpu_type": ""}
    figures: dict[str, Any] = {"nodes": 0, "spares": 0, "gpus": 0, "simulated_gpus": False}
    state = row.state
    if state == "ready" and (snapshot.stale or any(not node.usable for node in snapshot.nodes)):
        state = "degraded"
    return ClusterOut.model_validate(
        {
            **known,
            **figures,
            **row.summary,
            "name": row.name,
            "state": state,
            "gpus_used": sum(node.gpus_used for node in snapshot.nodes),
            "jobs_running": sum(job.state in RUNNING for job in snapshot.jobs),
            "jobs_pending": sum(job.state in WAITING for job in snapshot.jobs),
            "created_at": row.created_at,
            "as_of": snapshot.as_of,
            "stale": snapshot.stale,
        }
    )


def node_outs(cluster: Cluster, snapshot: Snapshot) -> list[NodeOut]:
    """Head first, then every slot, whether there is a machine or not."""
    machines = {machine.name: machine for machine in snapshot.machines}
    states = {node.name: node for node in snapshot.nodes}
    holders = _holders(snapshot.jobs)
    spares = _spares(cluster, snapshot)
    seen = snapshot.as_of is not None

    def one(name: str, role: str, leaf: str) -> NodeOut:
        machine, state = machines.get(name), states.get(name)
        word = machine.state.value if machine else ("missing" if seen else "")
        out = NodeOut.model_validate(
            {"name": name, "role": role, "leaf": leaf, "machine": word, "address": machine.address if machine else ""}
        )
        if role == "head":
            out.usable = word == "running"
            return out
        return _with_slurm(out, state, holders.get(name, {}), cluster.plan.gpus)

    head = one(cluster.head, "head", "")
    return [head, *(one(s.name, "spare" if s.name in spares else "node", s.leaf) for s in cluster.slots)]


def _with_slurm(out: NodeOut, state: NodeState | None, holders: dict[int, int], gpus: int) -> NodeOut:
    count = state.gpus if state and state.gpus else gpus
    out.gpus = [GpuOut(index=index, job_id=holders.get(index)) for index in range(count)]
    if state is not None:
        out.states = list(state.states)
        out.reason = state.reason
        out.cpus, out.cpus_used = state.cpus, state.cpus_used
        out.memory_mib, out.memory_used_mib = state.memory_mib, state.memory_used_mib
        out.partitions = list(state.partitions)
        out.usable = state.usable
    return out


def _spares(cluster: Cluster, snapshot: Snapshot) -> set[str]:
    """Those Slurm holds in Headway's reservation; the last slots while nothing is known."""
    held = {node.name for node in snapshot.nodes if node.reservation.startswith("headway")}
    if held or snapshot.nodes:
        return held
    return set(cluster.slot_names[len(cluster.slots) - cluster.spares :]) if cluster.spares else set()


def _holders(jobs: Iterable[JobState]) -> dict[str, dict[int, int]]:
    """node -> GPU number -> job id."""
    found: dict[str, dict[int, int]] = {}
    for job in jobs:
        if job.state not in RUNNING:
            continue
        for node, indexes in job.gpu_indexes.items():
            found.setdefault(node, {}).update(dict.fromkeys(indexes, job.id))
    return found


def job_out(job: JobState, now: float, progress: ProgressOut | None = None) -> JobOut:
    end = job.end_time if 0 < job.end_time <= now and job.state not in RUNNING else int(now)
    started = job.start_time and job.state not in WAITING
    return JobOut(
        id=job.id,
        name=job.name,
        user=job.user,
        account=job.account,
        partition=job.partition,
        state=job.state,
        reason=job.reason,
        nodes=list(job.nodes),
        nodelist=compress(job.nodes),
        node_count=job.node_count,
        gpus=job.gpus,
        submit_time=job.submit_time,
        start_time=job.start_time,
        end_time=job.end_time,
        time_limit_s=job.time_limit_s,
        elapsed_s=max(0, end - job.start_time) if started else 0,
        restarts=job.restarts,
        stdout=job.stdout,
        stderr=job.stderr,
        command=job.command,
        workdir=job.workdir,
        qos=job.qos,
        exit_code=job.exit_code,
        array_job_id=job.array_job_id,
        array_task=job.array_task,
        progress=progress,
        why=why(job),
    )


def job_outs(snapshot: Snapshot, now: float | None = None) -> list[JobOut]:
    now = time.time() if now is None else now
    return [job_out(job, now, snapshot.progress.get(job.id)) for job in snapshot.jobs]


def check_out(check: Check) -> CheckOut:
    return CheckOut(name=check.name, ok=check.ok, message=check.message)


def fault_out(fault: Fault) -> FaultOut:
    return FaultOut(path=fault.path, message=fault.message, hint=fault.hint, level=fault.level)


def change_out(change: Change) -> ChangeOut:
    return ChangeOut(
        kind=change.kind,
        where=change.where,
        what=change.what,
        why=change.why,
        disturbs=change.disturbs.value,
        diff=list(change.diff),
    )


def changeset_out(changes: ChangeSet, cluster: Cluster, digest: str, warnings: Iterable[Fault]) -> ChangeSetOut:
    return ChangeSetOut(
        cluster=changes.cluster,
        changes=[change_out(change) for change in changes.changes],
        why_empty=changes.why_empty,
        asks=sum(change.disturbs in ASK_FROM for change in changes.changes),
        digest=digest,
        warnings=[fault_out(fault) for fault in warnings],
        price_usd_per_hour=price(cluster),
    )


def operation_out(operation: Operation) -> OperationOut:
    return OperationOut.model_validate(
        {
            "id": operation.id,
            "cluster": operation.cluster,
            "kind": operation.kind,
            "state": operation.state,
            "person": operation.person,
            "created_at": operation.created_at,
            "started_at": operation.started_at,
            "finished_at": operation.finished_at,
            "error": ErrorOut.model_validate(operation.error) if operation.error else None,
            "kept": list(operation.kept),
        }
    )


def event_out(event: Event) -> EventOut:
    return EventOut.model_validate(
        {
            "seq": event.seq,
            "at": event.at,
            "step": event.step,
            "text": event.text,
            "level": event.level,
            "done": event.done,
            "seconds": event.seconds,
        }
    )
