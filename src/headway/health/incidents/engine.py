"""Moves incidents from state to state: a symptom of a node opens an incident, and each step moves it on.

    seen ──────────► draining ──────► jobs moved ──────► repairing ────────► testing ──────► returned
     │ isolate_node    │ move_jobs       │ begin_repair     │ run_repair        │ run_node_tests
     │                 └ every pass      ├──► out of service└──► jobs moved     └──► jobs moved (the next repair)
     └► returned (only                   └──► testing                                or out of service
        the job is requeued)

Machines that a provider reclaims go through the same states with the steps of `spot_reclaim`. `headway.autoscale` handles
incidents of machines that can't be created. `machine_gone` closes an incident whose machine no longer exists.

Each step is stored before the next and can be repeated, so that a new server continues after a killed one. Repairs and tests
take long: they run as tasks that write nothing to the store, and a new server starts them again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import structlog

from headway.cluster.context import ClusterContext
from headway.cluster.scaling.reclaim_notices import reclaim_notices
from headway.domain.cluster import Cluster
from headway.domain.incident import DRAINS, ORPHAN, FaultAction, Incident, IncidentState, Symptom
from headway.domain.slurm.node_reasons import NO_MACHINE_REASON, ROLLOUT_REASON, SCALE_IN_REASON
from headway.domain.slurm.nodes_and_jobs import OUT, JobState
from headway.errors import Conflict, HeadwayError, NotFound
from headway.health.context import MOUNTS_AT_ONCE, HealthContext, fault_text
from headway.health.detection.agent_events import OFFLINE_ACTION, Heartbeats, OfflineAction
from headway.health.detection.dead_nodes import DeadNodeDetector, Messages
from headway.health.incidents import machine_gone, repair, spot_reclaim
from headway.health.incidents.drain import isolate_node
from headway.health.incidents.incident_tasks import IncidentTasks
from headway.health.incidents.move_jobs import ENDED_BADLY, move_jobs, requeue_job_of_symptom
from headway.health.incidents.storage import host_disk
from headway.health.policy import flaky_score, repair_ladder
from headway.health.policy.xid_verdicts import (
    DAY_S,
    Verdict,
    find_incident,
    job_of_gpu,
    judge_symptom,
    more_severe,
    symptom_evidence,
)
from headway.render.slurm.hooks.prolog_epilog import XID_MARK

log = structlog.get_logger("headway.health")
_NOTED_ONLY = {
    FaultAction.APP: "caused by the job: the node is not drained",
    FaultAction.CONSEQUENCE: "follows from another error",
    FaultAction.LOG: "recorded",
    FaultAction.WATCH: "recorded and watched",
}
MAX_OPEN_INCIDENTS = 10_000  # incidents that are handled at a time, the latest first
# after so many faults the others wait for the next pass: each fault may have taken half a minute
MAX_FAULTS_PER_PASS = 4
Step = Callable[[HealthContext, Incident], Awaitable[Incident]]
_STEPS: Mapping[IncidentState, Step] = MappingProxyType(
    {IncidentState.SEEN: isolate_node, IncidentState.DRAINING: move_jobs, IncidentState.JOBS_MOVED: repair.begin_repair}
)
# The states whose steps still run for a node whose slot is no longer in the cluster file: its jobs are moved, but its
# machine is not repaired or tested before it is deleted.
_STEPS_WITHOUT_SLOT = frozenset({IncidentState.SEEN, IncidentState.DRAINING})
_RECLAIM_STEPS: Mapping[IncidentState, Step] = MappingProxyType(
    {
        IncidentState.SEEN: isolate_node,
        IncidentState.DRAINING: spot_reclaim.move_jobs_before_reclaim,
        IncidentState.JOBS_MOVED: spot_reclaim.delete_machine,
        IncidentState.REPAIRING: spot_reclaim.wait_for_replacement,
    }
)


@dataclass
class IncidentEngine:
    """Handles one cluster's incidents for as long as the server runs. Call one method at a time; only
    `tasks.has_finished` may be read at any time."""

    cluster: Cluster
    cluster_context: ClusterContext
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    # node -> seconds since its last heartbeat, as last reported
    silent_s: Mapping[str, float] = field(default_factory=dict)
    empty_slots: frozenset[str] = frozenset()  # slots without a machine; the head remembers them as silent nodes
    tasks: IncidentTasks = field(default_factory=IncidentTasks)
    last_faults: dict[int, str] = field(
        default_factory=dict
    )  # incident -> last fault of its step; the entry reported last is at the end

    mount_limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOUNTS_AT_ONCE))
    context: HealthContext = field(init=False)
    dead_node_detector: DeadNodeDetector = field(init=False)

    def __post_init__(self) -> None:
        self.context = HealthContext(self.cluster, self.cluster_context, self.clock, self.sleep, self.mount_limit)
        self.dead_node_detector = DeadNodeDetector(self._jobs_are_handled, self.handle_dead_node)

    def use_cluster(self, cluster: Cluster) -> None:
        """Replaces the cluster by what its file says now, also for repairs that run."""
        self.cluster = self.context.cluster = cluster

    # --- symptoms, silent nodes and reclaim notices

    async def handle_symptom(self, symptom: Symptom, jobs: Iterable[JobState]) -> Messages:
        """Handles one symptom of a node's agent: opens or extends an incident and runs its steps. `jobs`: the jobs as
        last read. Returns messages, [] for a known symptom."""
        store, name = self.cluster_context.store, self.cluster.name
        if symptom.node not in self.cluster.slot_names or await store.symptoms.exists(name, symptom.id):
            return []
        if symptom.job is None:
            symptom = replace(symptom, job=job_of_gpu(symptom, jobs))
        history = await store.incidents.search(name, node=symptom.node)
        dealt = (earlier.last_symptom_at for earlier in history if earlier.state.closed and earlier.action in DRAINS)
        since = max((symptom.at - DAY_S, *(at + 0.001 for at in dealt)))
        verdict = judge_symptom(
            symptom, await store.symptoms.of_node(name, symptom.node, since), self.cluster.health.xid_classes
        )
        if verdict.action is FaultAction.HOST_DISK:
            return await host_disk.handle_full_host_disk(self.context, symptom, verdict)
        if symptom.kind == ORPHAN and (symptom.job is None or await self.context.job_state(symptom.job) != "RUNNING"):
            verdict = Verdict(FaultAction.LOG, f"job {symptom.job} has ended, and its slurmstepd with it")
        incident = await self._closed_incident_of(symptom, history) or find_incident(symptom, history, verdict)
        if incident is not None:
            incident = await self._add_symptom(incident, symptom, verdict, await self._is_in_service(symptom.node))
            if verdict.action is FaultAction.RESTART_JOB and incident.state is not IncidentState.SEEN:
                again = await requeue_job_of_symptom(self.context, incident, symptom)
                incident = again or await self._open_incident(
                    symptom.node, verdict.why, verdict.action, symptom.at, symptom_evidence(symptom)
                )
        elif verdict.acts and await self._is_rolling(symptom.node):
            verdict = Verdict(FaultAction.LOG, f"{verdict.why}; the tests of its roll decide")
        elif verdict.acts:
            verdict = repair_ladder.escalate_repeated_drain(verdict, history, self.clock())
            incident = await self._open_incident(
                symptom.node, verdict.why, verdict.action, symptom.at, symptom_evidence(symptom)
            )
        await store.symptoms.add(name, symptom)
        if incident is not None and not incident.state.closed:
            incident = await self._merge_offline_action(incident, symptom)
        words = verdict.why if verdict.acts else f"{verdict.why}; {_NOTED_ONLY.get(verdict.action, 'recorded')}"
        messages = [(symptom.node, words)]
        if incident is not None and not incident.state.closed:
            messages += await self._run_guarded(incident)
        await self._release_epilog(symptom.node)
        return messages

    async def handle_offline_action(self, action: OfflineAction) -> Messages:
        """Records what the head's agent did about a symptom while no server was connected. The record arrives before the
        symptom itself and becomes part of its incident, so that no job is requeued twice. Returns messages."""
        store, name = self.cluster_context.store, self.cluster.name
        if await store.symptoms.exists(name, action.id):
            return []
        jobs = f"jobs requeued: {', '.join(map(str, action.requeued)) or 'none'}"
        silent = action.silent_since is not None and action.node in self.cluster.slot_names
        incident = await self._incident_of_silence(action, jobs) if silent else None
        text = json.dumps({"requeued": action.requeued, "stay": action.not_requeueable})
        await store.symptoms.add(name, Symptom(action.id, action.at, action.node, 0, None, text, kind=OFFLINE_ACTION))
        messages = [(action.node, f"the head's agent had {'marked it DOWN' if silent else 'drained it'}; {jobs}")]
        return messages + (await self.run_due_steps(incident) if incident else [])

    async def _incident_of_silence(self, action: OfflineAction, jobs: str) -> Incident:
        """Returns the incident of a silence that the head's agent has dealt with. No symptom follows such a silence, so
        the incident is opened or extended here."""
        store, at = self.cluster_context.store, action.silent_since or action.at
        found = await self._open_incidents(action.node)
        evidence = {"dead": True, "at": at, "had": list(action.requeued)}
        if found and found[0].state is not IncidentState.OUT and not await self._may_have_jobs(found[0]):
            incident = found[0]
        else:  # the node was in service, because the head's agent acts on no other node
            incident = await self._open_for_dead_node(
                action.node, "no heartbeat, and its lease had ended", evidence, at
            )
        back = [job for job in action.requeued if await self.context.job_state(job) not in ENDED_BADLY]
        await store.incidents.record_requeued_jobs(incident.number, back, action.at)
        return await self.context.add_step(
            incident, incident.state, f"down; {jobs}", actor="relay", evidence={"done_at": action.at}
        )

    async def _closed_incident_of(self, symptom: Symptom, history: Iterable[Incident]) -> Incident | None:
        """Returns the closed incident that has dealt with the symptom, or None. A symptom that arrives late is no new
        fault, unless it was raised after the tests that returned the node had begun."""
        for incident in history:
            if incident.state.closed and (incident.drained or incident.action is FaultAction.RECLAIM):
                steps = (await self.cluster_context.store.incidents.get(incident.number)).steps
                over = next((step.at for step in reversed(steps) if "tests" in step.evidence), steps[-1].at)
                return incident if incident.fault_at <= symptom.at <= over else None
        return None

    async def _merge_offline_action(self, incident: Incident, symptom: Symptom) -> Incident:
        """Adds what the head's agent did about the symptom, if anything, to its incident. Returns the incident after the
        step."""
        found = await self.cluster_context.store.symptoms.of_node(self.cluster.name, symptom.node, symptom.at)
        action = next(
            (row for row in found if row.kind == OFFLINE_ACTION and row.id == f"{OFFLINE_ACTION} {symptom.id}"), None
        )
        if action is None:
            return incident
        content: dict[str, list[int]] = json.loads(action.text)
        await self.cluster_context.store.incidents.record_requeued_jobs(incident.number, content["requeued"], action.at)
        words = f"drained, and jobs requeued: {', '.join(map(str, content['requeued'])) or 'none'}"
        return await self.context.add_step(
            incident, incident.state, words, actor="relay", evidence=content | {"done_at": action.at}
        )

    async def handle_dead_node(self, node: str, what: str, **evidence: object) -> Messages:
        """Opens or extends an incident for a node whose machine does not run or that Slurm has lost, and runs its
        steps. `at` in `evidence`: when the fault began, in unix seconds, if known. Returns messages."""
        if await self._jobs_are_handled(node) or await self._leaves_service(node):
            return []
        given = evidence.get("at")
        at = float(given) if isinstance(given, int | float) and given else self.clock() - self.silent_s.get(node, 0.0)
        incident = await self._open_for_dead_node(node, what, {**evidence, "dead": True, "at": at}, at)
        return [(node, what), *await self._run_guarded(incident)]

    async def _open_for_dead_node(self, node: str, what: str, evidence: Mapping[str, object], at: float) -> Incident:
        """Opens an incident for a dead node, or extends the one it already has, so that both faults are handled as one.
        An incident under which jobs could continue becomes a reboot; any other keeps its action."""
        open_ones = await self._open_incidents(node)
        if not open_ones:
            return await self._open_incident(node, what, FaultAction.REBOOT, at, evidence)
        incident = open_ones[0]
        jobs_ran_on = incident.action is FaultAction.MOUNT or incident.action not in DRAINS
        action = FaultAction.REBOOT if jobs_ran_on else incident.action
        await self.tasks.cancel(incident)
        score = max(incident.score, flaky_score.action_score(action))
        return await self.context.add_step(
            incident, IncidentState.SEEN, what, evidence=evidence, action=action, score=score
        )

    async def _jobs_are_handled(self, node: str) -> bool:
        """Returns whether an incident of the node has dealt with its jobs, or is about to."""
        return any([not await self._may_have_jobs(incident) for incident in await self._open_incidents(node)])

    async def _may_have_jobs(self, incident: Incident) -> bool:
        """Returns whether jobs may run on the node although the incident is open: they keep running while a volume is
        away, have not been moved yet, or started after a person returned the node in Slurm directly."""
        if incident.action in (FaultAction.MOUNT, FaultAction.RECLAIM):
            return incident.action is FaultAction.MOUNT
        if incident.state is IncidentState.OUT:
            return await self._is_in_service(incident.node)
        if incident.state not in (IncidentState.SEEN, IncidentState.DRAINING):
            return False
        return not (await self.cluster_context.store.incidents.get(incident.number)).found("dead")

    async def confirm_dead(self, node: str, jobs: Iterable[int]) -> bool:
        """Asks the controller whether an earlier finding about a node with a running machine still holds: these jobs
        are on it or, without jobs, the node is out of service. An apply may have returned the node meanwhile."""
        if jobs:
            return bool(await self.context.jobs_on(node, ending=False) & set(jobs))
        return bool((await self.context.node_state(node))[0] & OUT)

    async def handle_heartbeats(self, beats: Heartbeats, now: float) -> Messages:
        """Handles nodes without heartbeats and returns messages. A dead node is fenced first, so that it writes nothing
        after its jobs start on other nodes; if the provider can't fence, the node's agent has ended the jobs by
        then."""
        beats = replace(
            beats, silent_s={node: age for node, age in beats.silent_s.items() if node not in self.empty_slots}
        )
        return await self.dead_node_detector.check_heartbeats(self.context, beats, now)

    async def handle_reclaim_notices(self) -> Messages:
        """Opens incidents for machines that the provider is about to reclaim. Returns messages."""
        messages: Messages = []
        for node, at in (await reclaim_notices(self.cluster_context.provider, self.cluster)).items():
            messages += await self._handle_reclaim(node, at)
        return messages

    async def _handle_reclaim(self, node: str, at: float) -> Messages:
        """Opens or extends the incident of a machine that is reclaimed at `at`. Cancels a running repair or test of the
        node, because its machine is lost in any case."""
        store, name, now = self.cluster_context.store, self.cluster.name, self.clock()
        words = f"the provider takes its machine back in {at - now:.0f} s"
        machine = (await self.context.machines()).get(node)
        if machine is None:
            return []
        # The start of the machine belongs to the id: its replacement has the same name and may be reclaimed in turn.
        notice_id = f"{FaultAction.RECLAIM} {node} {at:.0f} {machine.started_at:.0f}"
        notice = Symptom(notice_id, now, node, 0, None, words, kind=FaultAction.RECLAIM)
        if await store.symptoms.exists(name, notice.id):
            return []
        evidence = {"until": at, "ends": at - spot_reclaim.JOBS_END_BEFORE_S, "started_at": machine.started_at}
        found = await self._open_incidents(node)
        if found:
            await self.tasks.cancel(found[0])
            out = found[0].drained and found[0].state is not IncidentState.SEEN
            state = IncidentState.DRAINING if out else IncidentState.SEEN
            incident = await self.context.add_step(
                found[0], state, words, evidence=evidence, action=FaultAction.RECLAIM
            )
        else:
            incident = await self._open_incident(node, words, FaultAction.RECLAIM, now, evidence)
        await store.symptoms.add(name, notice)
        return [(node, words), *await self._run_guarded(incident)]

    # --- steps from state to state

    async def resume_open(self, only: FaultAction | None = None) -> Messages:
        """Runs the due steps of every open incident (`only`: of incidents with this action). A fault in one incident
        does not delay the others. Returns messages."""
        unfinished = await self.cluster_context.store.incidents.search(
            self.cluster.name, unfinished=True, limit=MAX_OPEN_INCIDENTS
        )
        moved = await machine_gone.close_incidents(self.context, unfinished, self.tasks.cancel) if only is None else []
        messages = [(closed.node, closed.steps[-1].text) for closed in moved]
        after = {closed.number: closed for closed in moved}
        tried_last = {number: place for place, number in enumerate(self.last_faults, 1)}
        failed = 0
        for incident in sorted(unfinished, key=lambda incident: tried_last.get(incident.number, 0)):
            incident = after.get(incident.number, incident)
            if (
                incident.state is not IncidentState.OUT
                and only in (None, incident.action)
                and failed < MAX_FAULTS_PER_PASS
            ):
                messages += await self._run_guarded(incident)
                failed += incident.number in self.last_faults
        return messages

    async def _run_guarded(self, incident: Incident) -> Messages:
        """Calls `run_due_steps`. An error is reported once, and the step is tried again in the next pass. Unexpected
        exceptions are handled the same way, because a bug in one incident must not stop the others."""
        try:
            messages = await self.run_due_steps(incident)
        except HeadwayError as error:
            return self.report_once(incident.number, incident.node, fault_text(error))
        except Exception as error:
            messages = self.report_once(
                incident.number, incident.node, f"internal error in this step: {type(error).__name__}"
            )
            if messages:
                log.error("incident", cluster=self.cluster.name, number=incident.number, exc_info=error)
            return messages
        self.last_faults.pop(incident.number, None)
        return messages

    def report_once(self, number: int, where: str, fault: str) -> Messages:
        """Returns the fault as a message unless it was the last fault reported for the incident. `number`: the
        incident's number, 0 for the cluster."""
        before = self.last_faults.pop(number, "")
        self.last_faults[number] = fault
        return [(where, fault)] if fault != before else []

    async def run_due_steps(self, incident: Incident) -> Messages:
        """Runs an incident's steps until it has to wait. Returns what was done as messages."""
        if not (self.cluster.health.act or incident.state is IncidentState.TESTING):  # a person may request tests
            return []
        if incident.action in (FaultAction.MAKE, FaultAction.LINK):  # handled by `headway.autoscale`; by people
            return []
        if incident.action is FaultAction.HOST_DISK:
            after = await host_disk.close_if_space(self.context, incident)
            return [(after.node, after.steps[-1].text)] if after.state is not incident.state else []
        incident = await self.cluster_context.store.incidents.get(incident.number)
        seen = len(incident.steps)
        steps = _RECLAIM_STEPS if incident.action is FaultAction.RECLAIM else _STEPS
        while True:
            before = incident.state
            if incident.node not in self.cluster.group_of and before not in _STEPS_WITHOUT_SLOT:
                return [(incident.node, step.text) for step in incident.steps[seen:]]
            if before in steps:
                incident = await steps[before](self.context, incident)
            elif before in {IncidentState.REPAIRING, IncidentState.TESTING}:
                incident = await self.tasks.advance(self.context, incident)
            if incident.state is before:
                return [(incident.node, step.text) for step in incident.steps[seen:]]

    # --- requests of a person

    async def return_node(
        self, number: int, person: str, *, false_alarm: bool, begin: bool = True
    ) -> asyncio.Task[Any] | None:
        """Starts the tests of a node that a person reports as repaired. Returns the task to wait for; call
        `resume_open` when it has ended. With `begin=False` only records the request, and another server starts the
        tests. Raises NotFound for an incident of another cluster, and Conflict for one that is closed, under repair or
        without a machine to test."""
        incident = await self.cluster_context.store.incidents.get(number)
        if incident.cluster != self.cluster.name:
            raise NotFound(f"{self.cluster.name} has no incident {number}", hint="headway incidents lists them")
        if incident.state.closed:
            raise Conflict(f"incident {number} is over: {incident.state.value}", hint=f"headway incident show {number}")
        if incident.action in (FaultAction.LINK, FaultAction.HOST_DISK):
            state = IncidentState.FALSE_ALARM if false_alarm else IncidentState.RETURNED
            link = incident.action is FaultAction.LINK
            words = "closed; the next fabric test measures it again" if link else "closed"
            await self.context.add_step(incident, state, words, actor=person)
            return None
        if incident.action in (FaultAction.RECLAIM, FaultAction.MAKE):
            if not self.cluster.health.act:  # no other code closes it
                state = IncidentState.FALSE_ALARM if false_alarm else IncidentState.RETURNED
                await self.context.add_step(incident, state, "repaired", actor=person)
                return None
            raise Conflict(
                f"incident {number} has no machine to test: the machine is missing or being removed",
                hint="wait: the incident ends when the machine is replaced or removed",
            )
        busy = incident.state in (IncidentState.REPAIRING, IncidentState.TESTING)
        if incident.number in self.tasks.running or (busy and not begin):
            raise Conflict(
                f"incident {number} is {incident.state.value}: {incident.steps[-1].text}",
                hint=f"headway incident show {number}",
            )
        evidence = {"tests": True, "asked": person, "false_alarm": false_alarm}
        incident = await self.context.add_step(
            incident, IncidentState.TESTING, "tests begin", actor=person, evidence=evidence
        )
        if not begin:
            return None
        await self.tasks.advance(self.context, incident)
        return self.tasks.running.get(number)

    # --- helpers

    async def _open_incident(
        self, node: str, what: str, action: FaultAction, at: float, evidence: Mapping[str, object]
    ) -> Incident:
        score = flaky_score.action_score(action)
        return await self.cluster_context.store.incidents.open(
            self.cluster.name, node, what, action, at, evidence, score=score
        )

    async def _add_symptom(self, incident: Incident, symptom: Symptom, verdict: Verdict, serves: bool) -> Incident:
        """Adds a symptom to an incident. `serves`: the node is in service, so a person returned it in Slurm directly,
        and the drain has to be repeated for a symptom that drains."""
        action = more_severe(incident.action, verdict.action) if verdict.acts else incident.action
        state = incident.state
        jobs_ran_on = incident.action is FaultAction.MOUNT and action is not FaultAction.MOUNT
        if verdict.drains and (incident.action not in DRAINS or jobs_ran_on or (serves and state is IncidentState.OUT)):
            state = IncidentState.SEEN
            await self.tasks.cancel(incident)
        return await self.cluster_context.store.incidents.add_step(
            incident,
            state,
            verdict.why,
            evidence=symptom_evidence(symptom) | {"drains": verdict.drains},
            action=action,
            score=max(incident.score, flaky_score.action_score(action)),
            last_symptom_at=max(symptom.at, incident.last_symptom_at),
        )

    async def _release_epilog(self, node: str) -> None:
        """Ends the wait of the node's epilog: the error is classified now, so the epilog need not hold jobs any longer.
        Without this the wait ends after 60 s."""
        with contextlib.suppress(HeadwayError):
            machine = await self.context.running_machine(node)
            await self.cluster_context.connections.remote(machine, ["rm", "-f", XID_MARK], timeout_s=5)

    async def _open_incidents(self, node: str) -> Sequence[Incident]:
        """Returns the node's open incidents, without those of machines that can't be created or deleted, which are no
        fault of the node."""
        found = await self.cluster_context.store.incidents.search(self.cluster.name, node=node, unfinished=True)
        return [incident for incident in found if incident.action is not FaultAction.MAKE]

    async def _leaves_service(self, node: str) -> bool:
        """Returns whether the node's machine is deleted or about to be, and no job runs on it. A missing heartbeat is
        no fault then."""
        states, reason = await self.context.node_state(node)
        asleep = states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"}
        if asleep or reason.startswith(NO_MACHINE_REASON):
            return True
        return reason.startswith((SCALE_IN_REASON, ROLLOUT_REASON)) and not await self.context.jobs_on(node)

    async def _is_rolling(self, node: str) -> bool:
        """Returns whether a rollout creates the node's machine again and no job runs on it. The rollout runs tests of
        its own on the node."""
        _, reason = await self.context.node_state(node)
        return reason.startswith(ROLLOUT_REASON) and not await self.context.jobs_on(node)

    async def _is_in_service(self, node: str) -> bool:
        states, _ = await self.context.node_state(node)
        return not states & OUT
