"""Converts domain objects and rows of the store to API schemas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from headway.domain.changeset import ASK_FROM, Change, ChangeSet
from headway.domain.cluster import MAIN_GROUP, Cluster, Group
from headway.domain.incident import Incident
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.state import FLAKY_NODES, SPARES, JobState, NodeState
from headway.errors import Fault
from headway.health.incidents.measured_times import incident_timings
from headway.jobs.explain.pending import PendingReason
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.reason_sentences import job_reason
from headway.jobs.view.ettr import EffectiveTime
from headway.schemas.base import ErrorOut, FaultOut
from headway.schemas.clusters import ChangeOut, ChangeSetOut, ClusterOut, DifferenceOut, NewsOut, OperationOut
from headway.schemas.incidents import IncidentOut, IncidentStepOut, MovedJobOut, TimesOut
from headway.schemas.jobs import CourseOut, JobOut, ProgressOut
from headway.schemas.nodes import GpuOut, NodeOut
from headway.services.read_model.snapshot import Snapshot
from headway.store import ClusterRow, Operation

_MORE = tuple(JobOut.model_fields)[tuple(JobOut.model_fields).index("priority") :]  # with the same names as in JobState


def summary_of(cluster: Cluster) -> dict[str, Any]:
    """Returns what lists show of a cluster; it is stored in the cluster's row."""
    return {
        "provider": cluster.provider.name,
        "image": cluster.image,
        "slurm_version": cluster.slurm_version,
        "plan": cluster.plan_names,
        "gpu_type": cluster.largest_plan.gpu_type,
        "nodes": cluster.nodes,
        "spares": cluster.spares,
        "gpus": cluster.gpus,
        "simulated_gpus": cluster.simulated_gpus,
        "price_usd_per_hour": f"{cluster.min_usd_per_hour:.2f}",
        "groups": [
            {
                "name": group.name,
                "plan": group.plan.name,
                "nodes": group.nodes,
                "max": group.most,
                "spares": group.spares,
                "idle_s": group.idle_s,
                "spot": group.spot,
                "price_usd_per_node_hour": f"{group.price_usd_per_node_hour:.2f}",
            }
            for group in cluster.groups
        ],
    }


def cluster_out(row: ClusterRow, snapshot: Snapshot) -> ClusterOut:
    """Returns a cluster's row and live figures in the form of the API. A ready cluster with failed nodes or stale
    figures is degraded."""
    known = {"provider": "", "image": "", "slurm_version": "", "plan": "", "gpu_type": ""}
    figures: dict[str, Any] = {"nodes": 0, "spares": 0, "gpus": 0, "simulated_gpus": False}
    state = row.state
    if state == "ready" and (snapshot.stale or snapshot.has_failed_nodes):
        state = "degraded"
    groups = [{**group, "machines": _machines(row.name, group, snapshot)} for group in row.summary.get("groups", ())]
    return ClusterOut.model_validate(
        {
            **known,
            **figures,
            **row.summary,
            "groups": groups,
            "price_usd_per_hour": _price_now(row.summary.get("price_usd_per_hour", ""), groups),
            "name": row.name,
            "state": state,
            "gpus_used": snapshot.gpus_used,
            "jobs_running": snapshot.counts[0],
            "jobs_pending": snapshot.counts[1],
            "created_at": row.created_at,
            "as_of": snapshot.as_of,
            "stale": snapshot.stale,
        }
    )


def _machines(cluster: str, group: Mapping[str, Any], snapshot: Snapshot) -> int:
    """Returns the number of a group's machines, counted by name, because only the cluster's file lists its slots."""
    before = cluster if group["name"] == MAIN_GROUP else f"{cluster}-{group['name']}"
    slot = re.compile(rf"{re.escape(before)}-\d+-\d+")
    return sum(slot.fullmatch(machine.name) is not None for machine in snapshot.machines)


def _price_now(price: str, groups: Iterable[Mapping[str, Any]]) -> str:
    """Returns the price including the machines beyond the number that the file requests, which automatically scaling
    groups have."""
    more = (
        Decimal(group["price_usd_per_node_hour"]) * max(0, group["machines"] - group["nodes"] - group["spares"])
        for group in groups
    )
    extra = sum(more, Decimal(0))
    return f"{Decimal(price) + extra:.2f}" if price and extra else price


def node_outs(cluster: Cluster, snapshot: Snapshot) -> list[NodeOut]:
    """Returns the head first, then every node that exists or should exist, but not the slots that are only used by a
    larger number of nodes. The list is made once per reading and shared: callers must not change it."""
    known: tuple[Cluster, list[NodeOut]] | None = snapshot.derived.get("nodes")
    if known is None or known[0] is not cluster:
        known = snapshot.derived["nodes"] = cluster, _node_outs(cluster, snapshot)
    return known[1]


def _node_outs(cluster: Cluster, snapshot: Snapshot) -> list[NodeOut]:
    machines = {machine.name: machine for machine in snapshot.machines}
    states = {node.name: node for node in snapshot.nodes}
    holders = _holders(snapshot.jobs)
    spares = _spares(cluster, snapshot)
    seen = snapshot.as_of is not None
    shown = {*choose_slots(cluster, machines), *(name for name in machines if name in cluster.group_of)}

    def one(name: str, role: str, leaf: str) -> NodeOut:
        machine, state = machines.get(name), states.get(name)
        word = machine.state.value if machine else ("missing" if seen else "")
        out = NodeOut.model_validate(
            {"name": name, "role": role, "leaf": leaf, "machine": word, "address": machine.address if machine else ""}
        )
        if role == "head":
            out.usable = word == "running"
            return out
        group = cluster.group_of[name]
        out.group, out.plan = group.name, group.plan.name
        return _with_slurm(out, state, holders.get(name, {}), group)

    return [
        *(one(name, "head", "") for name in cluster.heads),
        *(one(s.name, "spare" if s.name in spares else "node", s.leaf) for s in cluster.slots if s.name in shown),
    ]


def _with_slurm(out: NodeOut, state: NodeState | None, holders: dict[int, int], group: Group) -> NodeOut:
    count = state.gpus if state and state.gpus else sum(group.gpu_counts.values())
    out.gpus = [GpuOut(index=index, job_id=holders.get(index)) for index in range(count)]
    # Until a roll has divided its GPUs as the file says, Slurm has others.
    if state is None or not state.gpus or (set(state.gpu_types), count) == _types_and_count(group):
        out.gpu_parts = group.parts.description if group.parts else ""
        for gpu, (number, profile) in zip(out.gpus, _instances(group), strict=False):
            gpu.gpu, gpu.part = number, profile
    if state is not None:
        out.states = list(state.states)
        out.reason = state.reason or (
            "fails too often: for jobs in reservation headway_lemons only" if state.reservation == FLAKY_NODES else ""
        )
        out.cpus, out.cpus_used = state.cpus, state.cpus_used
        out.memory_mib, out.memory_used_mib = state.memory_mib, state.memory_used_mib
        out.partitions = list(state.partitions)
        out.usable = state.usable
    return out


def _types_and_count(group: Group) -> tuple[set[str], int]:
    return set(group.gpu_counts), sum(group.gpu_counts.values())


def _instances(group: Group) -> Iterator[tuple[int, str]]:
    """Yields (GPU, profile) of each MIG instance of a node in the order in which Slurm counts them: by profile, then by
    GPU."""
    for profile, count in group.parts.counts.items():
        for gpu in range(group.plan.gpus):
            yield from [(gpu, profile)] * count


def _spares(cluster: Cluster, snapshot: Snapshot) -> set[str]:
    """Returns the nodes in Headway's spare reservation; if no nodes are known, the last slots."""
    reserved = {node.name for node in snapshot.nodes if node.reservation == SPARES}
    if reserved or snapshot.nodes:
        return reserved
    return set(cluster.slot_names[len(cluster.slots) - cluster.spares :]) if cluster.spares else set()


def _holders(jobs: Iterable[JobState]) -> dict[str, dict[int, int]]:
    """Returns node -> GPU number -> job id."""
    found: dict[str, dict[int, int]] = {}
    for job in jobs:
        if job.state not in RUNNING:
            continue
        for node, indexes in job.gpu_indexes.items():
            found.setdefault(node, {}).update(dict.fromkeys(indexes, job.id))
    return found


def job_out(
    job: JobState, now: float, progress: ProgressOut | None = None, waits: PendingReason | None = None
) -> JobOut:
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
        why=job_reason(job),
        needs=format_phrase(waits.needs, now) if waits else "",
        expected_nodes=compress(waits.nodes) if waits else "",
        **{name: getattr(job, name) for name in _MORE},
    )


def job_row(job: JobState) -> bytes:
    """Returns the job as JSON for lists, without the values that change all the time: `elapsed_s` of running jobs, and
    progress."""
    out = job_out(job, float(job.end_time))
    silent = {name for name in _MORE if not getattr(out, name)}
    if job.state in RUNNING:
        silent.add("elapsed_s")
    return out.model_dump_json(exclude=silent | {"progress", "tasks", "needs", "expected_nodes"}).encode()


def row_now(job: JobState, row: bytes, now: float, progress: ProgressOut | None) -> bytes:
    """Returns the row with the present `elapsed_s` and progress."""
    if job.state not in RUNNING:
        return row
    prefix = b'{"elapsed_s":%d,' % max(0, int(now) - job.start_time if job.start_time else 0)
    if progress is not None:
        prefix += b'"progress":' + progress.model_dump_json().encode() + b","
    return prefix + row[1:]


def course_out(course: EffectiveTime) -> CourseOut | None:
    """Returns None for a training that was never restarted: all of its time counted."""
    if not course.restarts or course.ettr is None:
        return None
    return CourseOut(
        restarts=course.restarts,
        lost_s=round(course.lost_s, 1),
        down_s=round(course.down_s, 1),
        ettr=round(course.ettr, 3),
    )


def incident_out(incident: Incident) -> IncidentOut:
    return IncidentOut(
        number=incident.number,
        cluster=incident.cluster,
        node=incident.node,
        what=incident.what,
        action=incident.action.value,
        state=incident.state.value,
        opened_at=incident.opened_at,
        drained=incident.drained,
        fault_at=incident.fault_at,
        score=incident.score,
        times=TimesOut(**asdict(incident_timings(incident))),
        jobs=[
            MovedJobOut(job=job.job, requeued_at=job.requeued_at, running_at=job.running_at, step_at=job.step_at)
            for job in incident.jobs
        ],
        steps=[
            IncidentStepOut(
                at=step.at, state=step.state.value, actor=step.actor, text=step.text, evidence=dict(step.evidence)
            )
            for step in incident.steps
        ],
    )


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
        warnings=[FaultOut.model_validate(fault) for fault in warnings],
        price_usd_per_hour=f"{cluster.min_usd_per_hour:.2f}",
        differences=[DifferenceOut(**asdict(difference)) for difference in changes.differences],
    )


def operation_news(operation: Operation, state: str, at: float, text: str = "") -> NewsOut:
    """Returns the event for an operation that has entered `state`."""
    return NewsOut(
        at=at, cluster=operation.cluster, kind="operation", name=operation.id, state=state,
        before={"queued": "", "running": "queued"}.get(state, "running"), text=text or operation.kind,
        user=operation.person,
    )  # fmt: skip


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
