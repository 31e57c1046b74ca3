"""Makes the parts of a cluster's page from a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from headway.domain.slurm.hostlist import compress, natural_key
from headway.domain.slurm.state import JobState
from headway.schemas.clusters import CheckOut, ClusterOut, NodeOut
from headway.schemas.incidents import IncidentOut
from headway.web.live_data import Snapshot
from headway.web.view_models import (
    Cell,
    Chart,
    ChecksView,
    CheckView,
    FabricView,
    FaultsView,
    FaultView,
    GroupsView,
    GroupView,
    Holder,
    JobGroup,
    JobView,
    Key,
    LeafView,
    Mark,
    NodeView,
    Notice,
    Page,
    QueueView,
    StateView,
    SummaryView,
    TrainingView,
)
from headway.web.views.banners import cluster_banner
from headway.web.views.wording import count, job_word, node_kind, pending_reason

HUES = 8
PATTERNS = 4
ROWS = 15  # queue rows shown per group; the rest is counted, and shown on the queue's own page
ENDED_ROWS = 5
HAPPENINGS = 8
FAULTS = 4
MOST_NODES = 64  # up to this many nodes are shown with their GPUs; more are shown as a map
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class JobKeys:
    """Assigns each running job a key, which it keeps through requeues until it has ended."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[int, int]] = {}

    def of(self, cluster: str, jobs: Iterable[JobState]) -> dict[int, Key]:
        """Returns the keys of the jobs that hold GPUs or held them before a requeue."""
        slots = self._slots.setdefault(cluster, {})
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


def _key(slot: int) -> Key:
    turn, place = divmod(slot, len(_LETTERS))
    letter = _LETTERS[place] + (str(turn + 1) if turn else "")
    return Key(letter, slot % HUES, (slot // HUES) % PATTERNS)


def page(snapshot: Snapshot, keys: Mapping[int, Key], chosen: int | None = None) -> Page:
    """Returns the page's parts. `chosen` is the job whose loss is drawn; None or an unknown one picks the largest
    training."""
    cluster = snapshot.status.cluster
    job = _charted(snapshot, chosen)
    chosen_id = job.id if job else 0
    progress = snapshot.progress.get(chosen_id)
    series = tuple((int(s), float(v)) for s, v in progress.series) if progress else ()

    def row(one: JobState) -> JobView:
        return _job(one, keys.get(one.id), one.id == chosen_id)

    key = keys.get(chosen_id)
    nodes = snapshot.status.nodes
    fabric = _fabric(cluster, nodes, snapshot.jobs, keys)
    training = TrainingView(
        job=row(job) if job else None,
        step=progress.step if progress else None,
        loss=progress.loss_word(3) if progress else "",
        tokens_per_s=progress.tokens_per_s if progress else None,
        course=progress.course if progress else None,
        drawn=bool(series),
        simulated=cluster.simulated_gpus,
        cluster=cluster.name,
    )
    parts: dict[str, object] = {
        "state": StateView(cluster.state, cluster.simulated_gpus),
        "summary": _summary(cluster, fabric),
        "notice": _notices(cluster, fabric),
        "fabric": replace(fabric, leaves=()) if fabric.large else fabric,
        "training": training,
        "queue": _queue(cluster, snapshot.jobs, row),
        "faults": _faults(cluster.name, snapshot),
        "checks": _checks(snapshot.status.checks),
        "groups": groups_view(cluster),
        "history": tuple(snapshot.happenings[:HAPPENINGS]),
    }
    return Page(parts, Chart(chosen_id, key.hue if key else 0, series), cluster.as_of, cluster.stale)


def groups_view(cluster: ClusterOut) -> GroupsView:
    """Returns the groups of a cluster."""
    rows = tuple(
        GroupView(
            one.name,
            one.plan,
            one.machines,
            one.nodes,
            one.max,
            one.spares,
            one.idle_s,
            one.spot,
            price(one.price_usd_per_node_hour),
        )
        for one in cluster.groups
    )
    elastic = any(row.idle_s is not None or row.spot or row.most > row.nodes for row in rows)
    return GroupsView(rows, cluster.name, shown=len(rows) > 1 or elastic)


def _charted(snapshot: Snapshot, chosen: int | None) -> JobState | None:
    """Returns the job whose loss is drawn: the chosen one; otherwise jobs with progress before those without,
    running before waiting ones, larger ones first."""
    candidates = []
    for job in snapshot.jobs:
        kind, drawn = job_word(job.state, job.reason)[0], job.id in snapshot.progress
        if job.id == chosen:
            return job
        if kind == "running" or (drawn and kind == "waiting"):
            candidates.append((not drawn, kind != "running", -job.gpus, job.id, job))
    return min(candidates, key=lambda c: c[:4])[4] if candidates else None


def _holders(node: NodeOut, names: Mapping[int, str], keys: Mapping[int, Key]) -> dict[int, Holder]:
    ids = sorted({gpu.job_id for gpu in node.gpus if gpu.job_id is not None})
    return {job: Holder(job, names.get(job, ""), keys.get(job)) for job in ids}


def _node(node: NodeOut, names: Mapping[int, str], keys: Mapping[int, Key]) -> NodeView:
    kind, word = node_kind(node)
    holders = _holders(node, names, keys)
    cells = tuple(
        Cell(gpu.index, holders[gpu.job_id] if gpu.job_id is not None else None)
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


def _fabric(
    cluster: ClusterOut, nodes: Iterable[NodeOut], jobs: Iterable[JobState], keys: Mapping[int, Key]
) -> FabricView:
    names = {job.id: job.name for job in jobs}
    heads = []
    leaves: dict[str, list[NodeView]] = {}
    for node in sorted(nodes, key=lambda n: natural_key(n.name)):
        if node.role == "head":
            heads.append(_node(node, names, keys))
        else:
            leaves.setdefault(node.leaf or "leaf1", []).append(_node(node, names, keys))
    return FabricView(
        heads=tuple(heads),
        leaves=tuple(LeafView(leaf, tuple(leaves[leaf])) for leaf in sorted(leaves, key=natural_key)),
        simulated=cluster.simulated_gpus,
        gpu_type=cluster.gpu_type,
        creating=cluster.state == "creating",
        cluster=cluster.name,
        large=sum(map(len, leaves.values())) > MOST_NODES,
    )


def _summary(cluster: ClusterOut, fabric: FabricView) -> SummaryView:
    views = [node for leaf in fabric.leaves for node in leaf.nodes]
    return SummaryView(
        name=cluster.name,
        state=cluster.state,
        facts=(f"provider {cluster.provider}", cluster.image, f"Slurm {cluster.slurm_version}"),
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


def _notices(cluster: ClusterOut, fabric: FabricView) -> tuple[Notice, ...]:
    found = [*cluster_banner(cluster)]
    bad = [node for leaf in fabric.leaves for node in leaf.nodes if node.kind == "down"]
    found += _heads_down(fabric)
    if bad and cluster.state not in ("down", "creating"):
        shown = "; ".join(f"{node.name}: {node.reason or node.word}" for node in bad[:3])
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        verb = "is" if len(bad) == 1 else "are"
        found.append(Notice("error", f"{count(len(bad), 'node')} {verb} down.", shown + more))
    return tuple(found)


def _heads_down(fabric: FabricView) -> list[Notice]:
    down = [head for head in fabric.heads if head.kind == "down"]
    if not down:
        return []
    if len(down) == len(fabric.heads):
        return [Notice("error", f"The head {down[0].name} is down.", "No job can start or be read until it is back.")]
    if down[0] is fabric.heads[0]:
        text = f"{fabric.heads[-1].name} is the active head: jobs continue, and accounting catches up when it is back."
        return [Notice("error", f"The head {down[0].name} is down.", text)]
    return [
        Notice(
            "error",
            f"The second head {down[0].name} is down.",
            "If the first head fails too, no other head takes over.",
        )
    ]


def _job(job: JobState, key: Key | None, chosen: bool) -> JobView:
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


def _checks(checks: Iterable[CheckOut]) -> ChecksView:
    rows = [CheckView(check.name, check.ok, check.message) for check in checks]
    return ChecksView(tuple(sorted(rows, key=lambda row: row.ok)))


def _faults(cluster: str, snapshot: Snapshot) -> FaultsView:
    rows = sorted((_fault(one) for one in snapshot.incidents), key=lambda row: (row.kind == "done", -row.number))
    return FaultsView(
        tuple(rows[:FAULTS]),
        sum(row.kind != "done" for row in rows),
        max(len(rows), snapshot.faults) - len(rows[:FAULTS]),
        cluster,
    )


def _fault(one: IncidentOut) -> FaultView:
    """Returns an incident's view. Steps that do not apply are left out of its course: without jobs on the node only
    the node's own steps are shown."""
    found = one.times
    marks = [Mark("seen", found.detect_s), Mark("drained", found.drain_s)]
    if one.jobs:
        marks += [Mark("requeued", found.requeue_s), Mark("running", found.running_s), Mark("new step", found.step_s)]
    kind = {"returned": "done", "false alarm": "done", "out of service": "out"}.get(one.state, "open")
    return FaultView(one.number, one.node, one.what, kind, one.state, one.fault_at or one.opened_at, tuple(marks))
