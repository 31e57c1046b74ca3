"""Makes the parts of a cluster's overview. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from headway.domain.slurm.hostlist import compress, natural_key
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.view.array_tasks import known_array_out
from headway.schemas.clusters import CheckOut, ClusterOut
from headway.schemas.jobs import ArrayOut
from headway.schemas.nodes.incidents import IncidentOut
from headway.schemas.nodes.nodes import NodeOut
from headway.services.read_model.overview import SHOWN_INCIDENTS, Overview
from headway.web.views.banners import down_banners
from headway.web.views.charts.job_charts import loss_chart
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
from headway.web.views.queue.queue_rows import array_word, job_page
from headway.web.views.state_wording import job_word, node_kind, pending_reason

HUES = 8
PATTERNS = 4
ROWS = 15  # queue rows shown per group; the rest is counted, and shown on the queue's own page
ENDED_ROWS = 5
SHOWN_EVENTS = 8
MOST_NODES = 64  # up to this many nodes are shown with their GPUs; more are shown as a map
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def assign_keys(slots: dict[int, int], jobs: Sequence[JobState]) -> dict[int, JobKey]:
    """Returns the keys of the jobs that have GPUs or had some before a requeue. `slots` (job id -> number of its key)
    is updated: a job keeps its key until it has ended. All tasks of an array have the same key."""
    owners = {job.id: job.array_job_id or job.id for job in jobs}
    kinds: dict[int, str] = {}
    for job in jobs:
        owner, kind = owners[job.id], job_word(job.state, job.reason)[0]
        if kind == "running" or kinds.get(owner) not in ("running", "waiting"):
            kinds[owner] = kind
    for gone in [owner for owner in slots if kinds.get(owner) not in ("running", "waiting")]:
        del slots[gone]
    taken = set(slots.values())
    low = 0  # all slots below are taken; without it each of thousands of jobs would search them
    for owner in sorted(owner for owner, kind in kinds.items() if kind == "running" and owner not in slots):
        while low in taken:
            low += 1
        slot = max(low, owner % HUES)
        while slot in taken:
            slot += 1
        slots[owner] = slot
        taken.add(slot)
    keys = {owner: _key(slot) for owner, slot in slots.items()}
    return keys | {job: keys[owner] for job, owner in owners.items() if owner in keys}


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

    def row(job: JobState, tasks: ArrayOut | None = None) -> JobView:
        return _job(job, keys.get(job.id), job.id == chosen_id, tasks)

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


def _holders(node: NodeOut, jobs: Mapping[int, JobState], keys: Mapping[int, JobKey]) -> dict[int, Holder]:
    """Returns the holder of each job's GPUs on the node: the job itself, or its array."""
    ids = sorted({gpu.job_id for gpu in node.gpus if gpu.job_id is not None})
    found = {}
    for number in ids:
        job = jobs.get(number)
        owner = (job.array_job_id if job else 0) or number
        found[number] = Holder(owner, job.name if job else "", keys.get(number))
    return found


def _node(node: NodeOut, jobs: Mapping[int, JobState], keys: Mapping[int, JobKey]) -> NodeView:
    kind, word = node_kind(node)
    holders = _holders(node, jobs, keys)
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
        holders=tuple(dict.fromkeys(holders.values())),
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
    by_id = {job.id: job for job in jobs}
    heads = []
    leaves: dict[str, list[NodeView]] = {}
    for node in sorted(nodes, key=lambda n: natural_key(n.name)):
        if node.role == "head":
            heads.append(_node(node, by_id, keys))
        else:
            leaves.setdefault(node.leaf or "leaf1", []).append(_node(node, by_id, keys))
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
        gpus=sum(leaf.gpus for leaf in nodes.leaves) or cluster.gpus,
        spare_gpus=sum(len(node.cells) for node in views if node.spare and node.kind == "idle"),
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


def _job(job: JobState, key: JobKey | None, chosen: bool, tasks: ArrayOut | None = None) -> JobView:
    several = tasks is not None and tasks.total > 1
    kind, word = array_word(tasks) if several and tasks else job_word(job.state, job.reason)
    running, waiting = kind == "running", kind == "waiting"
    return JobView(
        id=job.id,
        page=str(job.array_job_id) if several else job_page(job),
        label=f"{job.array_job_id} · {tasks.total:,} tasks" if several and tasks else job.label,
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


def _queue(
    cluster: ClusterOut, jobs: Iterable[JobState], row: Callable[[JobState, ArrayOut | None], JobView]
) -> QueueView:
    groups: dict[str, list[JobState]] = {"running": [], "waiting": [], "ended": []}
    for job in jobs:
        kind = job_word(job.state, job.reason)[0]
        groups[kind if kind in groups else "ended"].append(job)
    running, waiting, ended = (_one_per_array(group) for group in groups.values())
    running.sort(key=lambda one: one[0].id)
    waiting.sort(key=lambda one: (-one[0].restarts, one[0].submit_time, one[0].id))
    ended.sort(key=lambda one: (-one[0].end_time, -one[0].id))
    shown = (
        _group("Running", [row(*one) for one in running[:ROWS]], len(running)),
        _group("Pending", [row(*one) for one in waiting[:ROWS]], len(waiting)),
        _group("Recently ended", [row(*one) for one in ended[:ENDED_ROWS]], 0),
    )
    return QueueView(
        groups=tuple(group for group in shown if group.rows),
        running=max(cluster.jobs_running, len(running)),
        pending=max(cluster.jobs_pending, len(waiting)),
        simulated=cluster.simulated_gpus,
        cluster=cluster.name,
    )


def _one_per_array(jobs: Sequence[JobState]) -> list[tuple[JobState, ArrayOut | None]]:
    """Returns the jobs with the tasks that each stands for, None for a job that is no array. All tasks of an array are one
    job, with the nodes and GPUs of all and the times of the first to start and the last to end."""
    arrays: dict[int, list[JobState]] = {}
    for job in jobs:
        if job.array_job_id:
            arrays.setdefault(job.array_job_id, []).append(job)
    made: list[tuple[JobState, ArrayOut | None]] = [(job, None) for job in jobs if not job.array_job_id]
    for tasks in arrays.values():
        nodes = tuple(dict.fromkeys(node for job in tasks for node in job.nodes))
        first = min(tasks, key=lambda job: job.start_time or job.id)
        whole = replace(
            first,
            nodes=nodes,
            node_count=len(nodes) or first.node_count,
            gpus=sum(job.gpus for job in tasks),
            end_time=max(job.end_time for job in tasks),
        )
        made.append((whole, known_array_out(tasks)))
    return made


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
