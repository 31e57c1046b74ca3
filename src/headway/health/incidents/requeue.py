"""draining -> jobs moved: what ran on the node goes back to the queue, whole, and away from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headway.domain.incident import Incident, IncidentState, Signal, XidClass
from headway.domain.machine import Machine
from headway.errors import CommandFailed, HeadwayError
from headway.health.context import Tools
from headway.render.slurm.prolog_epilog import HOLD
from headway.slurm import commands
from headway.slurm.signal_request import warning_asked

ENDED_BADLY = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})
_WELL = "COMPLETED"
_SAME_S = 15.0  # from a GPU's error to the end of the job that it ends
# Errors with which a job on another GPU may still save itself; and a machine that its provider takes back.
_GENTLE = frozenset({XidClass.RESET, XidClass.DRAIN, XidClass.RECLAIM})


async def move_jobs(tools: Tools, incident: Incident) -> Incident:
    """One look: warns, requeues what is due, and ends when no job is left on the node."""
    if incident.action is XidClass.MOUNT:  # they wait for it, or don't need it
        return await tools.go(incident, IncidentState.JOBS_MOVED, "what runs there goes on")
    if incident.found("dead"):
        return await _moved_by_slurm(tools, incident)
    there = await tools.jobs_on(incident.node)
    runs = await tools.jobs_on(incident.node, ending=False)
    dealt = numbers(incident, "requeued") | numbers(incident, "stay")
    warned = _warned(incident)
    due = (there | await died(tools, incident, there)) - dealt - warned.keys()
    if due and incident.action in _GENTLE:
        incident = await _warn(tools, incident, due & runs - victims(incident))
        due -= _warned(incident).keys()
    now = tools.clock()
    over = {job for job, until in warned.items() if job not in dealt and (now >= until or job not in runs)}
    # Others requeue too: another node's incident, the job's own handler. Its next run, elsewhere, is nobody's to end.
    left = over - await commands.last_on(tools.env.connections, await tools.head(), incident.node) if over else over
    due |= over - left
    left |= await given_up(tools, incident.node, due, well=due - victims(incident) - warned.keys())
    due -= left
    if due or left:
        incident = await _send_back(tools, incident, due, left)
    if await tools.jobs_on(incident.node) or _warned(incident).keys() - dealt - over:
        return incident
    return await tools.go(incident, IncidentState.JOBS_MOVED, "no job is left on it")


@dataclass(frozen=True, slots=True)
class Sent:
    """Jobs that are requeued now, by whomever, and those that can't be. `fault`: what others met, which are to be tried again."""

    done: list[int]
    stay: list[int]
    fault: HeadwayError | None


async def requeue(tools: Tools, incident: Incident, jobs: Iterable[int]) -> Sent:
    """Whole: a job over several nodes leaves all of them."""
    done, stay = list[int](), list[int]()
    fault: HeadwayError | None = None
    head = await tools.head()
    for job in sorted(jobs):
        try:
            await commands.requeue(tools.env.connections, head, job)
            done.append(job)
        except CommandFailed as error:
            if commands.forbids_requeue(error) or commands.forgot(error):
                stay.append(job)
            else:
                fault = error
        except HeadwayError as error:  # the head: no other would fare better
            fault = error
            break
    await tools.env.store.note_moved(incident.number, done, tools.clock())
    return Sent(done, stay, fault)


async def given_up(tools: Tools, node: str, jobs: set[int], *, well: Collection[int] = ()) -> set[int]:
    """Those of them that still end on the node because somebody, or their time, ended them: that is no fault's doing. `well`:
    nor is it of these that they ended well, and hold the node for an epilog alone."""
    ending = jobs - await tools.jobs_on(node, ending=False) if jobs else jobs
    states = await commands.accounted(tools.env.connections, await tools.head(), ending) if ending else {}
    return {job for job, state in states.items() if state in commands.GIVEN_UP or (job in well and state == _WELL)}


async def told(tools: Tools, incident: Incident, sent: Sent) -> None:
    """Raises what kept jobs from being requeued, so that the step is taken again; what is done is noted first."""
    if sent.fault is None:
        return
    if sent.done:
        words = f"jobs requeued: {_list(sent.done)}"
        await tools.go(incident, incident.state, words, evidence={"requeued": sent.done})
    raise sent.fault


async def once_more(tools: Tools, incident: Incident, signal: Signal) -> Incident | None:
    """Another job, or another run of one, that an error has ended on a node whose incident has gone on already. None where
    it could not be requeued this time."""
    job = signal.job
    if job is None or await _went_back_since(tools, incident, job, signal.at):
        return incident
    there = job in await tools.jobs_on(incident.node)
    word = await tools.job_word(job)
    if (word not in ENDED_BADLY and not there) or await given_up(tools, incident.node, {job}):
        return incident
    sent = await requeue(tools, incident, [job])
    if sent.fault is not None:
        return None
    words = f"jobs requeued: {_list(sent.done)}"
    return await tools.go(incident, incident.state, words, evidence={"requeued": sent.done})


async def _went_back_since(tools: Tools, incident: Incident, job: int, at: float) -> bool:
    """Whether the run that the error of `at` ended was sent back: lines come in bursts, and the next run is another."""
    whole = await tools.env.store.incident(incident.number)
    return job in numbers(replace(whole, steps=tuple(step for step in whole.steps if step.at >= at)), "requeued")


async def _send_back(tools: Tools, incident: Incident, jobs: set[int], left: set[int]) -> Incident:
    """`left`: jobs that are to be let be, for they have left the node by themselves or by somebody's word."""
    sent = await requeue(tools, incident, jobs)
    stay = sorted({*sent.stay, *left})
    if sent.done or stay:
        words = f"jobs requeued: {_list(sent.done)}"
        words += f"; not to be requeued: {_list(sent.stay)}" if sent.stay else ""
        words += f"; gone already: {_list(sorted(left))}" if left else ""
        await _let_go(tools, incident.node, [*sent.done, *stay])
        evidence = {"requeued": sent.done, "stay": stay}
        incident = await tools.go(incident, IncidentState.DRAINING, words, evidence=evidence)
    if sent.fault is not None:
        raise sent.fault
    return incident


async def died(tools: Tools, incident: Incident, there: set[int]) -> set[int]:
    """Jobs that the fault ended before anybody looked, and that no epilog held. Of a GPU whose holder was not known yet,
    because the job had just begun: those that failed on the node in the same moment."""
    head, run, at = await tools.head(), tools.env.connections, incident.found("at")
    gone = victims(incident) - there
    states = {job: await commands.job_word(run, head, job) for job in gone}
    found = {job for job, state in states.items() if state in ENDED_BADLY}
    if incident.found("xid") and not victims(incident) and isinstance(at, int | float):
        ended = await commands.failed_on(run, head, incident.node)
        found |= {job for job, end in ended.items() if -1 <= end - at <= _SAME_S}
    return found


async def _moved_by_slurm(tools: Tools, incident: Incident) -> Incident:
    """Slurm itself requeues the jobs of a node that is down; those that forbid it have failed."""
    head = await tools.head()
    had = numbers(incident, "had")
    states = {job: await commands.job_word(tools.env.connections, head, job) for job in sorted(had)}
    ended = {job for job, state in states.items() if state in ENDED_BADLY}  # also those that its last breath reported
    ending = {job for job, state in states.items() if state == "COMPLETING"}
    told_of = await commands.accounted(tools.env.connections, head, ending) if ending else {}
    for job in (job for job in ending if told_of.get(job) not in commands.GIVEN_UP):
        if await commands.ends_badly(tools.env.connections, head, job):  # for want of the node, and held in its epilog
            ended.add(job)
    sent = await requeue(tools, incident, ended - numbers(incident, "requeued"))
    await told(tools, incident, sent)
    done = sent.done
    over = {*commands.GIVEN_UP, _WELL}
    by_slurm = [job for job, state in states.items() if state and state not in {*over, *ENDED_BADLY}]
    done += [job for job in by_slurm if job not in ended and told_of.get(job) not in over]
    done.sort()
    held = incident.found("held")
    for host, jobs in held.items() if isinstance(held, dict) else ():
        await _let_go(tools, host, jobs)
    await tools.env.store.note_moved(incident.number, done, tools.clock())
    lost = [job for job in states if job not in done]
    words = f"jobs requeued: {_list(done)}" + (f"; ended: {_list(lost)}" if lost else "")
    return await tools.go(incident, IncidentState.JOBS_MOVED, words, evidence={"requeued": done, "stay": lost})


async def _warn(tools: Tools, incident: Incident, jobs: set[int]) -> Incident:
    """Jobs that asked for a signal before their end get it now, and time; their nodes keep them completing after it,
    so that one which saves itself and ends well is requeued all the same and no end of it is told to its children."""
    run, head = tools.env.connections, await tools.head()
    until: dict[str, float] = {}
    for job in sorted(jobs):
        asked = warning_asked(*await commands.job_words(run, head, job))
        time_s = min(asked.before_s, _most_s(tools, incident)) if asked else 0
        if asked is None or time_s <= 0:
            continue
        with contextlib.suppress(HeadwayError):
            await run.remote(await tools.machine(incident.node), ["touch", f"{HOLD}/{job}"], timeout_s=10)
            await commands.signal(run, head, job, asked.signal, batch_only=asked.batch_only)
            until[str(job)] = tools.clock() + time_s
    if not until:
        return incident
    words = f"warned, as they asked for: {', '.join(until)}"
    return await tools.go(incident, IncidentState.DRAINING, words, evidence={"warned": until})


def _most_s(tools: Tools, incident: Incident) -> float:
    """What a job may have after its warning: where the machine goes at a known time, all but the last of it."""
    ends = incident.found("ends")
    return float(ends) - tools.clock() if isinstance(ends, int | float) else float(tools.cluster.health.warning_s)


async def hold(tools: Tools, incident: Incident, hosts: Mapping[int, str]) -> dict[str, list[int]]:
    """Jobs (job -> the node of its batch script) that end before they are requeued stay completing there. Returns those
    by node; none on the incident's own, which is cut off."""
    held: dict[str, list[int]] = {}
    for job, host in sorted(hosts.items()):
        if host != incident.node:
            held.setdefault(host, []).append(job)
    await asyncio.gather(*(_hold_there(tools, host, jobs) for host, jobs in held.items()))
    return held


async def _hold_there(tools: Tools, host: str, jobs: Iterable[int]) -> None:
    """A host that can't be told must not keep a dead node from being fenced."""
    with contextlib.suppress(HeadwayError):
        argv = ["touch", *(f"{HOLD}/{job}" for job in jobs)]
        await tools.env.connections.remote(await tools.machine(host), argv, timeout_s=2)


async def _let_go(tools: Tools, node: str, jobs: Iterable[int]) -> None:
    """The epilog need not hold these any longer."""
    with contextlib.suppress(HeadwayError):
        machine: Machine = await tools.machine(node)
        argv = ["rm", "-f", *(f"{HOLD}/{job}" for job in sorted(jobs))]
        await tools.env.connections.remote(machine, argv, timeout_s=5)


def victims(incident: Incident) -> set[int]:
    return {int(str(step.evidence["job"])) for step in incident.current if step.evidence.get("job") is not None}


def _warned(incident: Incident) -> dict[int, float]:
    """Job -> until when it may save itself."""
    found: dict[int, float] = {}
    for step in incident.current:
        until = step.evidence.get("warned")
        if isinstance(until, dict):
            found |= {int(job): float(at) for job, at in until.items()}
    return found


def numbers(incident: Incident, key: str) -> set[int]:
    found: set[int] = set()
    for step in incident.current:
        named = step.evidence.get(key)
        found |= {int(job) for job in named} if isinstance(named, list) else set()
    return found


def _list(jobs: Iterable[int]) -> str:
    return ", ".join(map(str, jobs)) or "none"
