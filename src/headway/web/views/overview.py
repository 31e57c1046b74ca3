"""Makes the parts of a cluster's overview. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from headway.domain.slurm.hostlist import compress, natural_key
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.clusters import CheckOut, ClusterOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.schemas.nodes.nodes import NodeOut
from headway.services.read_model.overview import SHOWN_INCIDENTS, Overview
from headway.web.views.banners import down_banners
from headway.web.views.job_charts import loss_chart
from headway.web.views.overview_models import (
    CheckView,
    GpuCell,
    GroupsView,
    GroupView,
    Holder,
    IncidentMoment,
    IncidentsView,
    IncidentView,
    JobGroup,
    JobKey,
    JobView,
    LeafView,
    NodesView,
    NodeView,
    QueueView,
    ReadinessView,
    SummaryView,
    TrainingView,
)
from headway.web.views.state_wording import job_word, node_kind, pending_reason

HUES = 8
PATTERNS = 4
ROWS = 15  # queue rows shown per group; the rest is counted, and shown on the queue's own page
ENDED_ROWS = 5
SHOWN_EVENTS = 8
MOST_NODES = 64  # up to this many nodes are shown with their GPUs; more are shown as a map
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def assign_keys(slots: dict[int, int], jobs: Iterable[JobState]) -> dict[int, JobKey]:
    """Returns the keys of the jobs that have GPUs or had some before a requeue. `slots` (job id -> number of its key)
    is updated: a job keeps its key until it has ended."""
    kinds = {job.id: job_word(job.state, job.reason)[0] for job in jobs}
    for gone in [job for job in slots if kinds.get(job) not in ("running", "waiting")]:
        del slots[gone]
    taken = set(slots.values())
    low = 0  # all slots below are taken; without it each of thousands of jobs would search them
    for job in sorted(job for job, kind in kinds.items() if kind == "running" and job not in slots):
        while low in taken:
            low += 1
        slot = max(low, job % HUES)
        while slot in taken:
            slot += 1
        slots[job] = slot
        taken.add(slot)
    return {job: _key(slot) for job, slot in slots.items()}


def _key(slot: int) -> JobKey:
    turn, place = divmod(slot, len(_LETTERS))
    letter = _LETTERS[place] + (str(turn + 1) if turn else "")
    return JobKey(letter, slot % HUES, (slot // HUES) % PATTERNS)


def overview_parts(overview: Overview, keys: Mapping[int, JobKey], chosen: int | None = None) -> dict[str, object]:
    """Returns the overview's parts by name. `chosen` is the job whose loss is drawn; None or an unknown one picks the
    largest training."""
    cluster = overview.status.cluster
    job = _charted(overview, chosen)
    chosen_id = job.id if job else 0
    progress = overview.progress.get(chosen_id)

    def row(job: JobState) -> JobView:
        return _job(job, keys.get(job.id), job.id == chosen_id)

    key = keys.get(chosen_id)
    nodes = _nodes(cluster, overview.status.nodes, overview.jobs, keys)
    training = TrainingView(
        job=row(job) if job else None,
        step=progress.step if progress else None,
        loss=progress.loss_word(3) if progress else "",
        tokens_per_s=progress.tokens_per_s if progress else None,
        effective_time=progress.effective_time if progress else None,
        drawn=bool(progress and progress.series),
        simulated=cluster.simulated_gpus,
        cluster=cluster.name,
    )
    return {
        "down_banners": down_banners(cluster, nodes),
        "summary": _summary(cluster, nodes),
        "nodes_panel": replace(nodes, leaves=()) if nodes.large else nodes,
        "training_panel": training,
        "chart": loss_chart(chosen_id, progress, key.hue if key else 0),
        "queue_panel": _queue(cluster, overview.jobs, row),
        "readiness_panel": _readiness(overview.status.checks),
        "groups_panel": groups_view(cluster),
        "incidents_panel": _incidents(overview),
        "events_panel": overview.recent_events[:SHOWN_EVENTS],
    }


def groups_view(cluster: ClusterOut) -> GroupsView:
    """Returns the groups of a cluster."""
    rows = tuple(
        GroupView(
            group.name,
            group.plan,
            group.machines,
            group.nodes,
            group.max,
            group.spares,
            group.idle_s,
            group.spot,
            price(group.price_usd_per_node_hour),
        )
        for group in cluster.groups
    )
    elastic = any(row.idle_s is not None or row.spot or row.most > row.nodes for row in rows)
    return GroupsView(rows, cluster.name, shown=len(rows) > 1 or elastic)


def _charted(overview: Overview, chosen: int | None) -> JobState | None:
    """Returns the job whose loss is drawn: the chosen one; otherwise jobs with progress before those without,
    running before waiting ones, larger ones first."""
    candidates = []
    for job in overview.jobs:
        kind, drawn = job_word(job.state, job.reason)[0], job.id in overview.progress
        if job.id == chosen:
            return job
        if kind == "running" or (drawn and kind == "waiting"):
            candidates.append((not drawn, kind != "running", -job.gpus, job.id, job))
    return min(candidates, key=lambda c: c[:4])[4] if candidates else None


def _holders(node: NodeOut, names: Mapping[int, str], keys: Mapping[int, JobKey]) -> dict[int, Holder]:
    ids = sorted({gpu.job_id for gpu in node.gpus if gpu.job_id is not None})
    return {job: Holder(job, names.get(job, ""), keys.get(job)) for job in ids}


def _node(node: NodeOut, names: Mapping[int, str], keys: Mapping[int, JobKey]) -> NodeView:
    kind, word = node_kind(node)
    holders = _holders(node, names, keys)
    cells = tuple(
        GpuCell(gpu.index, holders[gpu.job_id] if gpu.job_id is not None else None)
        for gpu in sorted(node.gpus, key=lambda g: g.index)
    )
    return NodeView(
        name=node.name,
        kind=kind,
        word=word,
        reason=_why(node) if kind in ("down", "drain", "start") else "",
        spare=node.role == "spare",
        cells=cells,
        holders=tuple(holders.values()),
        cpus=node.cpus,
        cpus_used=node.cpus_used,
        address=node.address,
    )


def _why(node: NodeOut) -> str:
    """Returns Slurm's reason, and the provider's state if the machine itself is gone."""
    gone = f"machine {node.machine}" if node.machine not in ("", "running", "starting") else ""
    return "; ".join(text for text in (gone, node.reason) if text)


def _nodes(
    cluster: ClusterOut, nodes: Iterable[NodeOut], jobs: Iterable[JobState], keys: Mapping[int, JobKey]
) -> NodesView:
    names = {job.id: job.name for job in jobs}
    heads = []
    leaves: dict[str, list[NodeView]] = {}
    for node in sorted(nodes, key=lambda n: natural_key(n.name)):
        if node.role == "head":
            heads.append(_node(node, names, keys))
        else:
            leaves.setdefault(node.leaf or "leaf1", []).append(_node(node, names, keys))
    return NodesView(
        heads=tuple(heads),
        leaves=tuple(LeafView(leaf, tuple(leaves[leaf])) for leaf in sorted(leaves, key=natural_key)),
        simulated=cluster.simulated_gpus,
        gpu_type=cluster.gpu_type,
        creating=cluster.state == "creating",
        cluster=cluster.name,
        large=sum(map(len, leaves.values())) > MOST_NODES,
    )


def _commit(cluster: ClusterOut) -> tuple[str, ...]:
    """Returns the commit whose file was applied, () for a file that is not from Git."""
    origin = cluster.origin
    return () if origin is None else (f"commit {origin.commit[:12]}{', scaled since' if origin.scaled else ''}",)


def _summary(cluster: ClusterOut, nodes: NodesView) -> SummaryView:
    views = [node for leaf in nodes.leaves for node in leaf.nodes]
    return SummaryView(
        name=cluster.name,
        state=cluster.state,
        facts=(f"provider {cluster.provider}", cluster.image, f"Slurm {cluster.slurm_version}", *_commit(cluster)),
        gpu_type=cluster.gpu_type,
        gpus=cluster.gpus,
        gpus_used=cluster.gpus_used,
        simulated=cluster.simulated_gpus,
        nodes=cluster.nodes,
        spares=cluster.spares,
        up=sum(node.kind in ("up", "idle") for node in views),
        total=len(views) or cluster.nodes + cluster.spares,
        running=cluster.jobs_running,
        pending=cluster.jobs_pending,
        price=price(cluster.price_usd_per_hour),
        plan=cluster.plan,
    )


def price(text: str) -> str:
    """Returns "$98.32" for "98.32"; any other text unchanged."""
    try:
        return f"${Decimal(text):,.2f}"
    except InvalidOperation:
        return text


def _job(job: JobState, key: JobKey | None, chosen: bool) -> JobView:
    kind, word = job_word(job.state, job.reason)
    running, waiting = kind == "running", kind == "waiting"
    return JobView(
        id=job.id,
        task=job.label,
        name=job.name,
        user=job.user,
        account=job.account,
        partition=job.partition,
        kind=kind,
        word=word,
        nodes=job.node_count or len(job.nodes),
        gpus=job.gpus,
        since=job.start_time if running else job.submit_time if waiting else 0,
        lasted_s=None if running or waiting else max(0, job.end_time - job.start_time) if job.start_time else 0,
        limit_s=job.time_limit_s,
        where=compress(job.nodes),
        why=pending_reason(job.reason) if waiting else "",
        restarts=job.restarts,
        key=key,
        chosen=chosen,
    )


def _queue(cluster: ClusterOut, jobs: Iterable[JobState], row: Callable[[JobState], JobView]) -> QueueView:
    groups: dict[str, list[JobState]] = {"running": [], "waiting": [], "ended": []}
    for job in jobs:
        kind = job_word(job.state, job.reason)[0]
        groups[kind if kind in groups else "ended"].append(job)
    running, waiting, ended = groups.values()
    running.sort(key=lambda job: job.id)
    waiting.sort(key=lambda job: (-job.restarts, job.submit_time, job.id))
    ended.sort(key=lambda job: (-job.end_time, -job.id))
    shown = (
        _group("Running", [row(job) for job in running[:ROWS]], max(cluster.jobs_running, len(running))),
        _group("Waiting", [row(job) for job in waiting[:ROWS]], max(cluster.jobs_pending, len(waiting))),
        _group("Recently ended", [row(job) for job in ended[:ENDED_ROWS]], 0),
    )
    return QueueView(
        groups=tuple(group for group in shown if group.rows),
        running=max(cluster.jobs_running, len(running)),
        pending=max(cluster.jobs_pending, len(waiting)),
        simulated=cluster.simulated_gpus,
        cluster=cluster.name,
    )


def _group(title: str, rows: list[JobView], total: int) -> JobGroup:
    return JobGroup(title, tuple(rows), max(0, total - len(rows)))


def _readiness(checks: Iterable[CheckOut]) -> ReadinessView:
    rows = [CheckView(check.name, check.ok, check.message) for check in checks]
    return ReadinessView(tuple(sorted(rows, key=lambda row: row.ok)))


def _incidents(overview: Overview) -> IncidentsView:
    rows = sorted(
        (_incident(incident) for incident in overview.incidents), key=lambda row: (row.kind == "done", -row.number)
    )
    return IncidentsView(
        tuple(rows[:SHOWN_INCIDENTS]),
        sum(row.kind != "done" for row in rows),
        max(len(rows), overview.incident_count) - len(rows[:SHOWN_INCIDENTS]),
        overview.status.cluster.name,
    )


def _incident(incident: IncidentOut) -> IncidentView:
    """Returns an incident's view. Steps that do not apply are left out of its course: without jobs on the node only
    the node's own steps are shown."""
    found = incident.times
    marks = [IncidentMoment("seen", found.detect_s), IncidentMoment("drained", found.drain_s)]
    if incident.jobs:
        marks += [
            IncidentMoment("requeued", found.requeue_s),
            IncidentMoment("running", found.running_s),
            IncidentMoment("new step", found.step_s),
        ]
    kind = {"returned": "done", "false alarm": "done", "out of service": "out"}.get(incident.state, "open")
    return IncidentView(
        incident.number,
        incident.node,
        incident.what,
        kind,
        incident.state,
        incident.fault_at or incident.opened_at,
        tuple(marks),
        incident.action,
    )
