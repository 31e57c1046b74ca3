"""The rounds of the services of a cluster: each reads jobs and nodes, gives the proxy its servers and keys, reads the health of
replicas from it, and then starts, drains and ends replicas.

Everything that a round needs is in the store, so a killed server loses nothing. Until the next round the proxy continues
with the servers and keys that it has."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

import structlog

from headway.domain.access.role import Role
from headway.domain.cluster import Cluster
from headway.domain.serving.service_proxy import ServiceReading, service_path
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.domain.slurm.nodes_and_jobs import OUT, JobState
from headway.errors import HeadwayError, InvalidSpec, NotFound, TooManySubmits, Unanswered, Unreachable
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.serving.replica_decisions import (
    must_drain,
    next_step,
    pause_after_failures,
    preempted_at,
    reason_to_leave,
    start_failed,
    with_step,
)
from headway.jobs.serving.scaling import WantedReplicas, has_settled, limits_now, wanted_replicas
from headway.jobs.serving.service_file import replica_run
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.tagged_submission import absent_person, submit_tagged
from headway.services.read_model.snapshot import Snapshot
from headway.services.serving.metrics import recent_figures
from headway.services.serving.proxy_settings import IN_PROXY, ObservedService, is_active, proxy_settings
from headway.services.serving.stored_service import StoredService, server_name
from headway.store import ReplicaRow, ServiceRow

# Ports of replicas. Below those that the launcher gives to ranks (node/programs/rank_launcher.py).
PORTS = range(17000, 20000)

log = structlog.get_logger("headway.services.serving")


async def advance_services(state: AppState, name: str, rows: Sequence[ServiceRow]) -> None:
    """Does one round of the services of a cluster. Raises Unreachable while it does not answer; the next round tries again."""
    _, cluster = await state.clusters.get(name)
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.stale:
        raise Unreachable(snapshot.stale)
    stored = await state.store.services.replicas(*(row.id for row in rows))
    found = []
    for row in rows:
        async with _others_continue(state, row):
            mine = [one for one in stored if one.service == row.id]
            found.append(await _observe(state, cluster, snapshot, row, mine))
    carried = [one for one in found if one.row.state == "running" or any(map(is_active, one.replicas))]
    unread = {row.proxy_name for row in rows} - {one.row.proxy_name for one in found}
    proxy = await state.backend.proxy.steer_proxy(cluster, await proxy_settings(state, name, carried, unread))
    state.proxies[name] = proxy
    taken = {one.port for one in stored if is_active(one)}
    ends = await _ends_of_nodes(state, name, snapshot, stored)
    for one in found:
        reading = proxy.services.get(one.row.proxy_name, ServiceReading())
        async with _others_continue(state, one.row):
            await _advance(state, cluster, snapshot, one, reading, taken, ends)


@contextlib.asynccontextmanager
async def _others_continue(state: AppState, row: ServiceRow) -> AsyncIterator[None]:
    """Stores an error of one service as its reason, so that the other services continue. Raises Unreachable, which is of all
    services of the cluster."""
    try:
        yield
    except Unreachable:
        raise
    except HeadwayError as error:
        log.warning("a round of a service failed", service=row.id, error=error.message)
        if row.state == "running":
            await state.store.services.change(row.id, why=error.message)
    except Exception as error:
        log.error("a round of a service failed", service=row.id, exc_info=error)


async def _ends_of_nodes(
    state: AppState, cluster: str, snapshot: Snapshot, replicas: Sequence[ReplicaRow]
) -> dict[str, float]:
    """Returns the nodes with replicas whose provider reclaims them -> when jobs end there, in unix seconds."""
    used = {replica.node for replica in replicas if is_active(replica)}
    if all(OUT.isdisjoint(node.states) for node in snapshot.nodes if node.name in used):
        return {}
    incidents = await state.store.incidents.open_and_recent(cluster, latest=0)
    known = await state.store.incidents.with_steps(one for one in incidents if one.node in used)
    return {one.node: float(end) for one in known if isinstance(end := one.found("ends"), int | float)}


async def _observe(
    state: AppState, cluster: Cluster, snapshot: Snapshot, row: ServiceRow, known: Sequence[ReplicaRow]
) -> ObservedService:
    """Returns the replicas as their jobs are now."""
    jobs: dict[int, JobState] = {}
    replicas = []
    for replica in known:
        new = replica
        if replica.job_id and is_active(replica):
            job = snapshot.by_id.get(replica.job_id)
            if job is None:
                with contextlib.suppress(NotFound):
                    job = await state.readings.job(cluster, replica.job_id)
            new = _with_job(replica, job, state.clock())
            if job is not None:
                jobs[replica.number] = job
        replicas.append(new)
    return ObservedService(row, StoredService.of(row), tuple(known), tuple(replicas), jobs)


def _with_job(replica: ReplicaRow, job: JobState | None, now: float) -> ReplicaRow:
    """Returns the replica with the state of its job."""
    asked = replica.state in ("draining", "ending")
    if job is None:
        why = replica.why if asked else f"Slurm does not know job {replica.job_id} any more"
        return replace(replica, state="ended", since=now, ended_at=now, why=why, failed=replica.failed or not asked)
    if job.state in ENDED:
        why = replica.why if asked else job_reason(job) or f"its job ended: {job.state}"
        return replace(replica, state="ended", since=now, ended_at=now, why=why, failed=replica.failed or not asked)
    if job.state in RUNNING and job.nodes:
        if replica.state == "pending" or (replica.node != job.nodes[0] and not asked):
            return replace(replica, state="starting", since=now, node=job.nodes[0], why="")
        return replica
    if asked:
        return replica
    if replica.state != "pending":  # requeued
        return replace(replica, state="pending", since=now, node="", why=job_reason(job))
    return replace(replica, why=job_reason(job))


async def _advance(
    state: AppState,
    cluster: Cluster,
    snapshot: Snapshot,
    one: ObservedService,
    reading: ServiceReading,
    taken: set[int],
    ends_of_nodes: Mapping[str, float],
) -> None:
    """Decides about a service, stores the decision, and carries it out."""
    now, row, service = state.clock(), one.row, one.stored.service
    replicas = [_with_health(replica, reading, service.drain_s, now) for replica in one.replicas]
    replicas = [
        _start_failed(replica, reading, service.start_s, now) if start_failed(service, replica, now) else replica
        for replica in replicas
    ]
    wanted = await _wanted(state, one, reading, replicas, now)
    leaving, at_once = _leaving(cluster, snapshot, one, replicas, ends_of_nodes, now)
    failures, until = pause_after_failures(replicas)
    standby = service.replicas.standby if row.state == "running" else 0
    step = next_step(wanted.number + standby, replicas, leaving, may_start=now >= until, at_once=at_once)
    replicas = with_step(replicas, step, now)
    await state.store.services.update_replicas(new for old, new in zip(one.before, replicas, strict=True) if new != old)
    why = row.why if row.state == "stopped" else _why(replicas, failures, until, now)
    if (wanted.number, wanted.low_since, why) != (row.wanted, row.low_since, row.why):
        await state.store.services.change(row.id, wanted=wanted.number, low_since=wanted.low_since, why=why)
    await _log_changes(state, one, replicas, wanted)
    await _end(state, cluster, one, [replica for replica in replicas if replica.state == "ending"])
    if row.state == "running":
        await _start(state, cluster, one, replicas, step.start, taken)
    elif not any(map(is_active, one.before)):  # the proxy no longer has it: this round began without replicas
        await state.store.services.close(row.id)


async def _wanted(
    state: AppState, one: ObservedService, reading: ServiceReading, replicas: Sequence[ReplicaRow], now: float
) -> WantedReplicas:
    """Returns how many replicas a service is to have now."""
    row, file = one.row, one.stored.service.replicas
    if row.state != "running":
        return WantedReplicas(0, "", None)
    figures = None
    mine = [replica for replica in replicas if replica.version == row.version]
    if file.p95_ms is not None:
        figures = await recent_figures(state, row.id, 1, row.version)
    limits = limits_now(file, row.least, row.most, now)
    return wanted_replicas(
        file, limits, row.wanted, reading.active, row.low_since, now, figures=figures, settled=has_settled(mine, now)
    )


def _leaving(
    cluster: Cluster,
    snapshot: Snapshot,
    one: ObservedService,
    replicas: Sequence[ReplicaRow],
    ends_of_nodes: Mapping[str, float],
    now: float,
) -> tuple[dict[int, str], list[int]]:
    """Returns (the replicas that others are to replace -> the reason, those of them that must finish their requests at once)."""
    nodes = {node.name: node for node in snapshot.nodes}
    graces = {partition.name: partition.grace_s for partition in cluster.partitions}
    leaving: dict[int, str] = {}
    at_once = []
    service = one.stored.service
    for replica in filter(is_active, replicas):
        job = one.jobs.get(replica.number)
        why = reason_to_leave(service, one.row.version, replica, job, nodes, now)
        if not why:
            continue
        leaving[replica.number] = why
        ends = [ends_of_nodes[replica.node]] if replica.node in ends_of_nodes else []
        if job is not None and (since := preempted_at(job)):
            ends.append(since + graces.get(job.partition, 0))
        if must_drain(service, job, ends, now):
            at_once.append(replica.number)
    return leaving, at_once


async def _log_changes(
    state: AppState, one: ObservedService, replicas: Sequence[ReplicaRow], wanted: WantedReplicas
) -> None:
    """Stores what was decided as events of the service."""
    told = []
    if wanted.why and wanted.number != one.row.wanted:
        told.append(f"{one.row.wanted} to {wanted.number} replicas: {wanted.why}")
    for old, new in zip(one.before, replicas, strict=True):
        if new.state == old.state:
            continue
        name = f"replica {new.number} (version {new.version})"
        if new.state == "serving":
            told.append(f"{name} is healthy, on {new.node}")
        elif new.state == "unhealthy":
            told.append(f"{name} is unhealthy: {new.why}")
        elif new.state == "draining":
            told.append(f"{name} gets no new requests: {new.why}")
        elif new.state in ("ending", "ended") and new.failed and not old.failed:
            told.append(f"{name} failed: {new.why}")
    for text in told:
        await state.store.services.log_event(one.row.cluster, one.row.id, text)


def _with_health(replica: ReplicaRow, reading: ServiceReading, drain_s: int, now: float) -> ReplicaRow:
    """Returns the replica with the health that the proxy reports. One that was drained ends when it has no requests."""
    server = reading.servers.get(server_name(replica))
    if replica.state == "draining":
        idle = server is None or server.sessions == 0 or now - replica.since > drain_s
        return replace(replica, state="ending", since=now) if idle else replica
    if server is None or replica.state not in IN_PROXY:
        return replica
    if server.healthy and replica.state in ("starting", "unhealthy"):
        return replace(replica, state="serving", since=now, healthy_at=replica.healthy_at or now, why="")
    if not server.healthy and replica.state == "serving":
        return replace(replica, state="unhealthy", since=now, why=f"health check: {server.check}")
    return replica


def _start_failed(replica: ReplicaRow, reading: ServiceReading, start_s: int, now: float) -> ReplicaRow:
    """Returns a replica that never got healthy as failed."""
    server = reading.servers.get(server_name(replica))
    check = server.check if server and server.check else "it did not answer"
    return replace(
        replica, state="ending", since=now, failed=True, why=f"it was not healthy within {start_s} s: {check}"
    )


def _why(replicas: Sequence[ReplicaRow], failures: int, until: float, now: float) -> str:
    """Returns the reason for which the service lacks replicas; "" if it does not."""
    if not failures:
        return ""
    last = max((one for one in replicas if one.failed), key=lambda one: one.ended_at or 0.0)
    pause = f"; the next one starts in {until - now:.0f} s" if until > now else ""
    return f"{failures} replicas failed in a row; replica {last.number}: {last.why}{pause}"


async def _end(state: AppState, cluster: Cluster, one: ObservedService, ending: Sequence[ReplicaRow]) -> None:
    """Cancels the jobs of replicas that are to end, again in each round until they have ended."""
    jobs = []
    for replica in ending:
        if job := replica.job_id or await _interrupted_submission(state, cluster, one, replica):
            jobs.append(job)
            with contextlib.suppress(NotFound):
                await state.backend.jobs.cancel(cluster, str(job), one.row.user, as_operator=False)
    if jobs:
        state.live.request_refresh(cluster.name, tuple(jobs))


async def _interrupted_submission(state: AppState, cluster: Cluster, one: ObservedService, replica: ReplicaRow) -> int:
    """Returns and stores the job of a replica that is to end and whose submission got no answer; 0 if it is not known yet, or if
    there is none: then the replica has ended.

    The head tells the job only to the same submission. If it never got one, it submits the job now, which is on hold until it is
    cancelled."""
    # Not absent_person: a person who may no longer submit can have left a job that must end.
    who = Principal(one.row.person, Role.MEMBER, assigned_user=one.row.user)
    try:
        job = await _submit(state, who, cluster, one, replica, on_hold=True)
    except (TooManySubmits, Unreachable, InvalidSpec) as error:  # tried again in the next round
        why = f"it is not known whether it has a job: {error.message}"
        if replica.why != why:
            await state.store.services.update_replicas([replace(replica, why=why)])
        return 0
    except HeadwayError as error:
        now, why = state.clock(), f"no job of it is known: {error.message}"
        await state.store.services.update_replicas([replace(replica, state="ended", since=now, ended_at=now, why=why)])
        return 0
    await state.store.services.update_replicas([replace(replica, job_id=job)])
    return job


async def _submit(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    one: ObservedService,
    replica: ReplicaRow,
    *,
    on_hold: bool = False,
) -> int:
    """Submits the job of a replica, or finds the one that was submitted before, and returns its number in Slurm."""
    row, stored = one.row, one.stored
    path = service_path(row.team, row.name)
    run = replica_run(
        stored.service, replica.number, path=path, port=replica.port, bundle=stored.bundle, git=stored.git
    )
    if on_hold:
        run.sbatch.append("--hold")
    return await submit_tagged(
        state, who, cluster, run, user=row.user, mark=stored.mark, series=row.id, number=replica.number, at=replica.at,
        links={},
    )  # fmt: skip


async def _start(
    state: AppState,
    cluster: Cluster,
    one: ObservedService,
    replicas: Sequence[ReplicaRow],
    count: int,
    taken: set[int],
) -> None:
    """Submits new replicas, after those whose submission was interrupted."""
    row = one.row
    last = max((replica.number for replica in replicas), default=0)
    new = []
    for number in range(last + 1, last + 1 + count):
        port = _free_port(taken)
        taken.add(port)
        new.append(ReplicaRow(row.id, row.cluster, number, row.version, port, state.clock(), state.clock()))
    waiting = [replica for replica in replicas if replica.state == "submitting"] + new
    if not waiting:
        return
    try:
        who = await absent_person(state, cluster, row.person)
    except HeadwayError as error:
        await state.store.services.stop(row.id, error.message)
        return
    await state.store.services.add_replicas(new)
    for replica in waiting:
        try:
            job = await _submit(state, who, cluster, one, replica)
        except (TooManySubmits, Unreachable) as error:  # tried again in the next round
            log.info("a replica waits for its submission", service=row.id, replica=replica.number, error=error.message)
            if not isinstance(error, Unanswered):
                return
            continue
        except HeadwayError as error:
            now = state.clock()
            done = replace(replica, state="ended", since=now, ended_at=now, why=error.message, failed=True)
        else:
            done = replace(replica, state="pending", since=state.clock(), job_id=job)
        await state.store.services.update_replicas([done])


def _free_port(taken: Collection[int]) -> int:
    """Returns a port that no replica of the cluster has. It is random, so that a replica that found its port in use gets another
    one the next time."""
    free = [port for port in PORTS if port not in taken]
    if not free:
        raise HeadwayError(f"all ports from {PORTS.start} to {PORTS.stop - 1} have replicas")
    return secrets.choice(free)
