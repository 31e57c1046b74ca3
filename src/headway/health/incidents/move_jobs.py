"""draining -> jobs moved: jobs of the node are requeued as a whole and start on other nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headway.domain.incident import FaultAction, Incident, IncidentState, Symptom
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, HeadwayError
from headway.health.context import HealthContext
from headway.render.slurm.hooks.prolog_epilog import HOLD
from headway.slurm import job_commands, node_jobs
from headway.slurm.signal_option import requested_signal

ENDED_BADLY = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})
_COMPLETED = "COMPLETED"
_SAME_FAULT_S = 15.0  # longest time from a GPU's error to the end of the job that it ends
# Actions that allow a warning: with these errors a job on another GPU can still write a checkpoint, and so can a job on
# a machine that its provider reclaims.
_ALLOWS_WARNING = frozenset({FaultAction.RESET, FaultAction.DRAIN, FaultAction.RECLAIM})


async def move_jobs(context: HealthContext, incident: Incident) -> Incident:
    """Runs one pass: warns jobs, requeues those that are due, and moves the incident on when no job is left on the
    node. Returns the incident."""
    if incident.action is FaultAction.MOUNT:  # jobs wait for the volume, or do not use it
        return await context.add_step(incident, IncidentState.JOBS_MOVED, "running jobs continue")
    if incident.found("dead"):
        return await _finish_jobs_of_dead_node(context, incident)
    there = await context.jobs_on(incident.node)
    runs = await context.jobs_on(incident.node, ending=False)
    dealt = jobs_in_evidence(incident, "requeued") | jobs_in_evidence(incident, "stay")
    warned = _warned(incident)
    due = (there | await jobs_ended_by_fault(context, incident, there)) - dealt - warned.keys()
    if due and incident.action in _ALLOWS_WARNING:
        incident = await _warn_jobs(context, incident, due & runs - jobs_in_symptoms(incident))
        due -= _warned(incident).keys()
    now = context.clock()
    over = {job for job, until in warned.items() if job not in dealt and (now >= until or job not in runs)}
    # A job may have been requeued by others: by the incident of another node or by the job's own signal handler. Its
    # next run, on other nodes, must not be ended.
    left = over
    if over:
        run, head = context.cluster_context.connections, await context.head()
        left = over - await node_jobs.recent_jobs_on_node(run, head, incident.node)
    due |= over - left
    left |= await ended_by_user(
        context, incident.node, due, completed_counts=due - jobs_in_symptoms(incident) - warned.keys()
    )
    due -= left
    if due or left:
        incident = await _requeue_and_note(context, incident, due, left)
    if await context.jobs_on(incident.node) or _warned(incident).keys() - dealt - over:
        return incident
    return await context.add_step(incident, IncidentState.JOBS_MOVED, "no job is left on the node")


@dataclass(frozen=True, slots=True)
class RequeueResult:
    """Jobs that are requeued, by this call or another, and jobs that can't be requeued. `fault`: the error that stopped
    the rest, which are tried again."""

    requeued: list[int]
    not_requeueable: list[int]
    fault: HeadwayError | None


async def requeue_jobs(context: HealthContext, incident: Incident, jobs: Iterable[int]) -> RequeueResult:
    """Requeues whole jobs: a job on several nodes leaves all of them. Records the requeued jobs in the incident."""
    done, stay = list[int](), list[int]()
    fault: HeadwayError | None = None
    head = await context.head()
    for job in sorted(jobs):
        try:
            await job_commands.requeue_job(context.cluster_context.connections, head, job)
            done.append(job)
        except CommandFailed as error:
            if job_commands.is_requeue_forbidden(error) or job_commands.is_unknown_job(error):
                stay.append(job)
            else:
                fault = error
        except HeadwayError as error:  # the head does not answer: the other jobs would fail too
            fault = error
            break
    await context.cluster_context.store.incidents.record_requeued_jobs(incident.number, done, context.clock())
    return RequeueResult(done, stay, fault)


async def ended_by_user(
    context: HealthContext, node: str, jobs: set[int], *, completed_counts: Collection[int] = ()
) -> set[int]:
    """Returns the jobs that are still completing on the node because a user, an operator or their time limit ended
    them. `completed_counts`: jobs for which a normal completion counts too."""
    ending = jobs - await context.jobs_on(node, ending=False) if jobs else jobs
    states = (
        await job_commands.read_accounted_states(context.cluster_context.connections, await context.head(), ending)
        if ending
        else {}
    )
    return {
        job
        for job, state in states.items()
        if state in job_commands.CANCELLED_STATES or (job in completed_counts and state == _COMPLETED)
    }


async def raise_fault(context: HealthContext, incident: Incident, sent: RequeueResult) -> None:
    """Raises the error that kept jobs from being requeued, so that the step is tried again. Records the requeued jobs
    first."""
    if sent.fault is None:
        return
    if sent.requeued:
        words = f"jobs requeued: {_list(sent.requeued)}"
        await context.add_step(incident, incident.state, words, evidence={"requeued": sent.requeued})
    raise sent.fault


async def requeue_job_of_symptom(context: HealthContext, incident: Incident, symptom: Symptom) -> Incident | None:
    """Requeues a job that an error ended on a node whose incident is past draining. Returns the incident after the
    step, or None if the requeue failed this time."""
    job = symptom.job
    if job is None or await _was_requeued_since(context, incident, job, symptom.at):
        return incident
    there = job in await context.jobs_on(incident.node)
    word = await context.job_state(job)
    if (word not in ENDED_BADLY and not there) or await ended_by_user(context, incident.node, {job}):
        return incident
    sent = await requeue_jobs(context, incident, [job])
    if sent.fault is not None:
        return None
    words = f"jobs requeued: {_list(sent.requeued)}"
    return await context.add_step(incident, incident.state, words, evidence={"requeued": sent.requeued})


async def _was_requeued_since(context: HealthContext, incident: Incident, job: int, at: float) -> bool:
    """Returns whether the run that the error at `at` ended was requeued already. Log lines arrive in bursts, and the
    job's next run must not be requeued for the same error."""
    whole = await context.cluster_context.store.incidents.get(incident.number)
    return job in jobs_in_evidence(
        replace(whole, steps=tuple(step for step in whole.steps if step.at >= at)), "requeued"
    )


async def _requeue_and_note(context: HealthContext, incident: Incident, jobs: set[int], left: set[int]) -> Incident:
    """Requeues the jobs and records the result. `left`: jobs that are not requeued because they left the node by
    themselves or a person ended them."""
    sent = await requeue_jobs(context, incident, jobs)
    stay = sorted({*sent.not_requeueable, *left})
    if sent.requeued or stay:
        words = f"jobs requeued: {_list(sent.requeued)}"
        words += f"; not to be requeued: {_list(sent.not_requeueable)}" if sent.not_requeueable else ""
        words += f"; ended already: {_list(sorted(left))}" if left else ""
        await _release_hold(context, incident.node, [*sent.requeued, *stay])
        evidence = {"requeued": sent.requeued, "stay": stay}
        incident = await context.add_step(incident, IncidentState.DRAINING, words, evidence=evidence)
    if sent.fault is not None:
        raise sent.fault
    return incident


async def jobs_ended_by_fault(context: HealthContext, incident: Incident, there: set[int]) -> set[int]:
    """Returns jobs that the fault ended before this pass and that no epilog held. If the GPU's job was not known yet,
    these are the jobs that failed on the node within _SAME_FAULT_S of the error."""
    head, run, at = await context.head(), context.cluster_context.connections, incident.found("at")
    gone = jobs_in_symptoms(incident) - there
    states = {job: await job_commands.read_job_state(run, head, job) for job in gone}
    found = {job for job, state in states.items() if state in ENDED_BADLY}
    if incident.found("xid") and not jobs_in_symptoms(incident) and isinstance(at, int | float):
        ended = await node_jobs.failed_jobs_on_node(run, head, incident.node)
        found |= {job for job, end in ended.items() if -1 <= end - at <= _SAME_FAULT_S}
    return found


async def _finish_jobs_of_dead_node(context: HealthContext, incident: Incident) -> Incident:
    """Records the jobs of a dead node as moved. Slurm itself requeues the jobs of a node that is down; jobs that may
    not be requeued have failed. Of jobs of --no-kill Slurm only takes the node away: those that had their batch script there
    would run without it until their time limit, and are requeued here."""
    head = await context.head()
    had = jobs_in_evidence(incident, "had")
    states = {
        job: await job_commands.read_job_state(context.cluster_context.connections, head, job) for job in sorted(had)
    }
    # also jobs that the node reported as failed while it died
    ended = {job for job, state in states.items() if state in ENDED_BADLY}
    ending = {job for job, state in states.items() if state == "COMPLETING"}
    told_of = (
        await job_commands.read_accounted_states(context.cluster_context.connections, head, ending) if ending else {}
    )
    for job in (job for job in ending if told_of.get(job) not in job_commands.CANCELLED_STATES):
        if await job_commands.failed_while_completing(
            context.cluster_context.connections, head, job
        ):  # the job failed because the node was lost, and an epilog holds it
            ended.add(job)
    alive = {job for job, state in states.items() if state == "RUNNING"}
    since = next((step.at for step in incident.current if "had" in step.evidence), 0.0)
    run = context.cluster_context.connections
    smaller = await node_jobs.jobs_that_lost_node(run, head, alive, incident.node, since)
    ended |= {job for job, has_script in smaller.items() if not has_script}
    continued = smaller.keys() - ended
    sent = await requeue_jobs(context, incident, ended - jobs_in_evidence(incident, "requeued"))
    await raise_fault(context, incident, sent)
    done = sent.requeued
    over = {*job_commands.CANCELLED_STATES, _COMPLETED}
    by_slurm = [job for job, state in states.items() if state and state not in {*over, *ENDED_BADLY}]
    done += [job for job in by_slurm if job not in ended | continued and told_of.get(job) not in over]
    done.sort()
    held = incident.found("held")
    for host, jobs in held.items() if isinstance(held, dict) else ():
        await _release_hold(context, host, jobs)
    await context.cluster_context.store.incidents.record_requeued_jobs(incident.number, done, context.clock())
    lost = [job for job in states if job not in {*done, *continued}]
    words = f"jobs requeued: {_list(done)}" + (f"; ended: {_list(lost)}" if lost else "")
    words += f"; on their other nodes: {_list(sorted(continued))}" if continued else ""
    evidence = {"requeued": done, "stay": [*lost, *sorted(continued)]}
    return await context.add_step(incident, IncidentState.JOBS_MOVED, words, evidence=evidence)


async def _warn_jobs(context: HealthContext, incident: Incident, jobs: set[int]) -> Incident:
    """Sends the requested signal to jobs that requested one before their end, and gives them time. Their nodes keep
    them completing after that, so that a job which saves its state and ends with success is requeued too, and its
    dependent jobs do not start."""
    run, head = context.cluster_context.connections, await context.head()
    until: dict[str, float] = {}
    for job in sorted(jobs):
        request = requested_signal(*await job_commands.read_script_and_command(run, head, job))
        time_s = min(request.before_s, _warning_limit_s(context, incident)) if request else 0
        if request is None or time_s <= 0:
            continue
        with contextlib.suppress(HeadwayError):
            await run.remote(await context.running_machine(incident.node), ["touch", f"{HOLD}/{job}"], timeout_s=10)
            await job_commands.signal_job(run, head, job, request.signal, batch_only=request.batch_only)
            until[str(job)] = context.clock() + time_s
    if not until:
        return incident
    words = f"warned by the signal that they requested: {', '.join(until)}"
    return await context.add_step(incident, IncidentState.DRAINING, words, evidence={"warned": until})


def _warning_limit_s(context: HealthContext, incident: Incident) -> float:
    """Returns the longest time that a job gets after its warning, in seconds: the time until the machine has to be
    empty if that is known, otherwise the cluster's `warning_s`."""
    ends = incident.found("ends")
    return float(ends) - context.clock() if isinstance(ends, int | float) else float(context.cluster.health.warning_s)


async def hold_completing(context: HealthContext, incident: Incident, hosts: Mapping[int, str]) -> dict[str, list[int]]:
    """Keeps the jobs (job -> node of its batch script) in state COMPLETING after their end, until they are requeued.
    Returns the held jobs by node, without the incident's own node, which is cut off."""
    held: dict[str, list[int]] = {}
    for job, host in sorted(hosts.items()):
        if host != incident.node:
            held.setdefault(host, []).append(job)
    await asyncio.gather(*(_hold_on_host(context, host, jobs) for host, jobs in held.items()))
    return held


async def _hold_on_host(context: HealthContext, host: str, jobs: Iterable[int]) -> None:
    """Makes the epilog of a host wait with these jobs. Errors are ignored, because a host that does not answer must not
    delay the fencing of a dead node."""
    with contextlib.suppress(HeadwayError):
        argv = ["touch", *(f"{HOLD}/{job}" for job in jobs)]
        await context.cluster_context.connections.remote(await context.running_machine(host), argv, timeout_s=2)


async def _release_hold(context: HealthContext, node: str, jobs: Iterable[int]) -> None:
    """Lets the node's epilog continue with these jobs. Errors are ignored."""
    with contextlib.suppress(HeadwayError):
        machine: Machine = await context.running_machine(node)
        argv = ["rm", "-f", *(f"{HOLD}/{job}" for job in sorted(jobs))]
        await context.cluster_context.connections.remote(machine, argv, timeout_s=5)


def jobs_in_symptoms(incident: Incident) -> set[int]:
    """Returns the ids of the jobs that the incident's symptoms name."""
    return {int(str(step.evidence["job"])) for step in incident.current if step.evidence.get("job") is not None}


def _warned(incident: Incident) -> dict[int, float]:
    """Returns the warned jobs, each with the time until which it may save its state, in unix seconds."""
    found: dict[int, float] = {}
    for step in incident.current:
        until = step.evidence.get("warned")
        if isinstance(until, dict):
            found |= {int(job): float(at) for job, at in until.items()}
    return found


def jobs_in_evidence(incident: Incident, key: str) -> set[int]:
    """Returns the job ids that the incident's steps list under `key`."""
    found: set[int] = set()
    for step in incident.current:
        named = step.evidence.get(key)
        found |= {int(job) for job in named} if isinstance(named, list) else set()
    return found


def _list(jobs: Iterable[int]) -> str:
    return ", ".join(map(str, jobs)) or "none"
