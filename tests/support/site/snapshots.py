"""Snapshots of a cluster, for page tests and screenshots."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.schemas.clusters import CheckOut, ClusterOut, StatusOut
from headway.schemas.jobs import EffectiveTimeOut, JobOut, ProgressOut
from headway.schemas.nodes.incidents import IncidentOut, RequeuedJobOut, TimesOut
from headway.schemas.nodes.nodes import GpuOut, NodeOut
from headway.services.read_model.snapshot import RecentEvent
from tests.support.clusters import builders

TRAIN = 104
SPEECH = 107


@dataclass(frozen=True)
class Snapshot:
    """A cluster as the API shows it; `demo_state.put` turns it into a server's state."""

    status: StatusOut
    jobs: tuple[JobOut, ...] = ()
    recent_events: tuple[RecentEvent, ...] = ()  # newest first
    incidents: tuple[IncidentOut, ...] = ()  # newest first


def losses(steps: int, first: float = 4.1, last: float = 1.6) -> list[tuple[int, float]]:
    """Returns a realistic loss curve: it falls fast, then slowly, with noise that is the same each time."""
    points = []
    for step in range(0, steps + 1, 5):
        noise = (math.sin(step * 1.7) + math.sin(step * 0.53)) * 0.035
        points.append((step, round(last + (first - last) * math.exp(-step / 90) + noise, 4)))
    return points


def training(nodes: Sequence[str], *, steps: int = 420, **changes: object) -> JobOut:
    """Returns the demo's training on these nodes, 8 GPUs each."""
    series = losses(steps)
    values: dict[str, object] = {
        "id": TRAIN,
        "name": "train_ddp",
        "user": "alice",
        "account": "vision",
        "partition": "train",
        "state": "RUNNING",
        "nodes": list(nodes),
        "nodelist": f"demo-1-[1-{len(nodes)}]",
        "node_count": len(nodes),
        "gpus": 8 * len(nodes),
        "start_time": int(time.time()) - 252,
        "submit_time": int(time.time()) - 260,
        "time_limit_s": 3600,
        "progress": ProgressOut(step=series[-1][0], loss=series[-1][1], series=series),
    }
    return JobOut.model_validate({**values, **changes})


def pending(job: int, name: str, user: str, reason: str, *, nodes: int = 1, gpus: int = 8, ago: int = 90) -> JobOut:
    """Returns a pending job, submitted `ago` seconds ago."""
    return JobOut(
        id=job,
        name=name,
        user=user,
        account="speech" if user == "carol" else "vision",
        partition="train",
        state="PENDING",
        reason=reason,
        node_count=nodes,
        gpus=gpus,
        submit_time=int(time.time()) - ago,
    )


def node(name: str, leaf: str, *, role: str = "node", held: Sequence[int | None] = (), **changes: object) -> NodeOut:
    """Returns a node with 8 GPUs; `held` names the job of each GPU."""
    holders = list(held) or [None] * 8
    busy = sum(job is not None for job in holders)
    state = "ALLOCATED" if busy == 8 else "MIXED" if busy else "IDLE"
    values: dict[str, object] = {
        "name": name,
        "role": role,
        "leaf": leaf,
        "address": "10.87.3.11",
        "machine": "running",
        "states": [state],
        "gpus": [GpuOut(index=i, job_id=job) for i, job in enumerate(holders)],
        "cpus": 192,
        "cpus_used": 24 * busy,
        "memory_mib": 2_000_000,
        "partitions": ["train", "debug"],
        "usable": True,
    }
    return NodeOut.model_validate({**values, **changes})


def head() -> NodeOut:
    return NodeOut(name="demo-head", role="head", address="10.87.3.10", machine="running", usable=True)


CHECKS = [
    CheckOut(name="machines", ok=True, message="6 of 6 running"),
    CheckOut(name="controller", ok=True, message="slurmctld 24.11.5 answers in 4 ms"),
    CheckOut(name="accounting", ok=True, message="slurmdbd answers, 2 teams, 4 people"),
    CheckOut(name="nodes", ok=True, message="5 of 5 registered, 8 GPUs each"),
    CheckOut(name="storage", ok=True, message="home, scratch and tiny are mounted on all"),
    CheckOut(name="spare", ok=True, message="demo-2-1 is held ready"),
]


def cluster(**changes: object) -> ClusterOut:
    values: dict[str, object] = {
        "name": "demo",
        "gpus_used": 32,
        "jobs_running": 1,
        "jobs_pending": 3,
        "price_usd_per_hour": "119.60",
        "created_at": time.time() - 600,
        "as_of": time.time() - 1,
    }
    return builders.cluster_out(**{**values, **changes})


def happy() -> Snapshot:
    """A training over four nodes, three pending jobs, and a ready spare."""
    names = [f"demo-1-{i}" for i in range(1, 5)]
    nodes = [head(), *(node(name, "leaf1", held=[TRAIN] * 8) for name in names)]
    nodes.append(node("demo-2-1", "leaf2", role="spare"))
    jobs = (
        training(names),
        pending(105, "eval_checkpoint", "alice", "Dependency", gpus=1, ago=214),
        pending(SPEECH, "asr_large", "carol", "Resources", nodes=2, gpus=16, ago=131),
        pending(108, "sweep_lr", "bob", "Priority", gpus=4, ago=38),
        JobOut(
            id=101,
            name="import_dataset",
            user="bob",
            account="vision",
            partition="debug",
            state="COMPLETED",
            nodelist="demo-1-1",
            node_count=1,
            gpus=0,
            elapsed_s=47,
            end_time=int(time.time()) - 300,
        ),
    )
    at = time.time()
    return Snapshot(
        StatusOut(cluster=cluster(), checks=CHECKS, nodes=nodes),
        jobs,
        (
            RecentEvent(at - 252, "started on 4 nodes", where="job 104"),
            RecentEvent(at - 300, "finished after 47s", where="job 101"),
            RecentEvent(at - 310, "apply done: 6 machines, Slurm ready in 12.4s"),
        ),
    )


def fault(number: int, node: str, what: str, state: str, ago: float, times: TimesOut, *jobs: int) -> IncidentOut:
    """Returns an incident that began `ago` seconds ago and moved these jobs."""
    at = time.time() - ago
    return IncidentOut(
        number=number, cluster="demo", node=node, what=what, action="reboot", state=state, opened_at=at, fault_at=at,
        drained=True, times=times, jobs=[RequeuedJobOut(job=job, requeued_at=at + 1) for job in jobs],
    )  # fmt: skip


def broken() -> Snapshot:
    """Like `happy` after a node was killed: the training continues with the spare."""
    before = happy()
    reason = "not responding since 14:02:11; the job on it was requeued"
    down = node("demo-1-3", "leaf1", machine="stopped", states=["DOWN", "NOT_RESPONDING"], reason=reason, usable=False)
    nodes = [down if n.name == "demo-1-3" else n for n in before.status.nodes[:-1]]
    nodes.append(node("demo-2-1", "leaf2", role="spare", held=[TRAIN] * 8))
    names = ["demo-1-1", "demo-1-2", "demo-1-4", "demo-2-1"]
    job = training(names, restarts=1, nodelist="demo-1-[1-2,4],demo-2-1", steps=460)
    assert job.progress
    job.progress.effective_time = EffectiveTimeOut(restarts=1, lost_s=4.2, down_s=9.1, ettr=0.951)
    checks = [
        CheckOut(name="nodes", ok=False, message="demo-1-3 is down: machine stopped"),
        *(check for check in CHECKS if check.name not in ("nodes", "spare")),
        CheckOut(name="spare", ok=False, message="in use by job 104; none left"),
    ]
    at = time.time()
    return Snapshot(
        StatusOut(cluster=cluster(state="degraded", gpus_used=32), checks=checks, nodes=nodes),
        (job, *before.jobs[1:]),
        (
            RecentEvent(at - 9, "goes on from step 400 on 4 nodes, the spare among them", where="job 104"),
            RecentEvent(at - 17, "requeued: a node under it died", "warning", "job 104"),
            RecentEvent(at - 19, "is down: not responding", "error", "demo-1-3"),
            *before.recent_events,
        ),
        (
            fault(
                2, "demo-1-3", "no heartbeat, and its machine is stopped", "repairing", 19,
                TimesOut(detect_s=0.6, drain_s=1.1, requeue_s=1.4, running_s=8.2), TRAIN,
            ),
            fault(
                1, "demo-1-2", "XID 79: GPU has fallen off the bus", "returned", 3900,
                TimesOut(detect_s=0.2, drain_s=0.7, requeue_s=1.0, running_s=7.9, step_s=14.3, closed_s=96.0), 98,
            ),
        ),
    )  # fmt: skip


def mixed() -> Snapshot:
    """Small jobs share the nodes, and one node is drained."""
    base = happy()
    held = [[110] * 4 + [111] * 2 + [None] * 2, [112, 113, 114, 115, 116, 117, 118, 119], [120] * 8]
    nodes = [head(), *(node(f"demo-1-{i}", "leaf1", held=jobs) for i, jobs in enumerate(held, 1))]
    nodes.append(node("demo-1-4", "leaf1", states=["IDLE", "DRAIN"], reason="memory errors on GPU 5 (XID 63)"))
    nodes.append(node("demo-2-1", "leaf2", role="spare"))
    ids = [110, 111, *range(112, 121)]
    jobs = tuple(
        training(["demo-1-1"], id=i, name=f"sweep_{i}", gpus=1, node_count=1, nodelist="demo-1-2", steps=5 * i - 500)
        for i in ids
    )
    return Snapshot(
        StatusOut(cluster=cluster(state="degraded", gpus_used=22, jobs_running=11), checks=CHECKS, nodes=nodes),
        (*jobs, *base.jobs[1:]),
    )


def creating() -> Snapshot:
    """A cluster in creation, without Slurm yet."""
    made = cluster(state="creating", gpus_used=0, jobs_running=0, jobs_pending=0, as_of=None)
    return Snapshot(StatusOut(cluster=made, checks=[], nodes=[]))


def idle() -> Snapshot:
    """A cluster that is ready and empty."""
    base = happy()
    nodes = [head(), *(node(n.name, n.leaf, role=n.role) for n in base.status.nodes[1:])]
    quiet = cluster(gpus_used=0, jobs_running=0, jobs_pending=0)
    return Snapshot(StatusOut(cluster=quiet, checks=CHECKS, nodes=nodes))


def stale(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot as if it were read six minutes ago."""
    old = snapshot.status.cluster.model_copy(
        update={"as_of": time.time() - 372, "stale": "the head demo-head does not answer (connection refused)."}
    )
    return replace(snapshot, status=snapshot.status.model_copy(update={"cluster": old}))


STATES: dict[str, Callable[[], Snapshot]] = {
    "happy": happy,
    "broken": broken,
    "mixed": mixed,
    "creating": creating,
    "idle": idle,
    "stale": lambda: stale(happy()),
}


def renamed(snapshot: Snapshot, name: str) -> Snapshot:
    """Returns the snapshot with another cluster name."""
    text = snapshot.status.model_dump_json().replace("demo", name)
    jobs = tuple(JobOut.model_validate_json(j.model_dump_json().replace("demo-", f"{name}-")) for j in snapshot.jobs)
    return Snapshot(StatusOut.model_validate_json(text), jobs)


def large(leaves: int = 32, each: int = 32) -> Snapshot:
    """A cluster of a thousand nodes and more, most of them busy."""
    nodes = [head()]
    for leaf in range(1, leaves + 1):
        for i in range(1, each + 1):
            turn = (leaf * each + i) % 41
            held = (
                [None] * 8
                if turn < 4
                else [200 + leaf // 3] * 8
                if turn < 30
                else [300 + leaf, *[400 + i] * 5, None, None]
            )
            states = {"states": ["DOWN"]} if turn == 40 else {"states": ["IDLE", "DRAIN"]} if turn == 3 else {}
            nodes.append(
                node(f"demo-{leaf}-{i}", f"leaf{leaf}", held=[] if states else held, usable=not states, **states)
            )
    made = cluster(nodes=leaves * each, spares=0, gpus=8 * leaves * each)
    held_by = sorted({gpu.job_id for one in nodes for gpu in one.gpus if gpu.job_id})
    jobs = tuple(training([], id=job, name=f"job_{job}", progress=None, node_count=1) for job in held_by)
    return Snapshot(StatusOut(cluster=made, checks=CHECKS, nodes=nodes), jobs)
