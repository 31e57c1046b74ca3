"""Detects dead nodes among those without heartbeats: checks the machine at the provider, then probes the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from headway.domain.machines.machine import MachineState
from headway.domain.slurm.node_reasons import is_headway_reason
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.errors import HeadwayError
from headway.health.context import HealthContext
from headway.health.detection.agent_events import Heartbeats
from headway.health.detection.probe import probe_node, read_heartbeat_ages
from headway.health.detection.silence_rules import (
    CHECK_EVERY_S,
    PROBE_EVERY_S,
    QUIET_S,
    find_suspects,
    probe_after_s,
)

Messages = list[tuple[str, str]]  # (node or job, text), shown to users


@dataclass
class DeadNodeDetector:
    """Detects one cluster's dead nodes. `jobs_are_handled` returns whether an incident has already dealt with the
    node's jobs. `on_dead` is called for each dead node."""

    jobs_are_handled: Callable[[str], Awaitable[bool]]
    on_dead: Callable[..., Awaitable[Messages]]
    probed_at: dict[str, float] = field(default_factory=dict)  # node -> time of the last probe
    # node -> time of the last check of its machine at the provider
    checked_at: dict[str, float] = field(default_factory=dict)

    async def check_heartbeats(self, context: HealthContext, beats: Heartbeats, now: float) -> Messages:
        """Finds silent nodes that do not answer probes either and calls `on_dead` for each. Returns messages as (node,
        text)."""
        return await self._check_machines(context, beats, now) + await self._probe_silent(context, beats, now)

    async def _check_machines(self, context: HealthContext, beats: Heartbeats, now: float) -> Messages:
        """Calls `on_dead` for silent nodes that have no running machine at the provider. This needs no probe and no
        minimum silence. Returns messages."""
        known = (name for name in beats.silent_s if name in context.cluster.slot_names)
        new = [name for name in known if now - self.checked_at.get(name, 0.0) >= CHECK_EVERY_S]
        if not new or beats.relay_away_s is not None:
            return []
        self.checked_at.update(dict.fromkeys(new, now))
        machines = await context.machines()
        messages: Messages = []
        for node in new:
            machine = machines.get(node)
            if (machine and machine.state is MachineState.RUNNING) or await _drained_by_person(context, node):
                continue
            what = f"its machine is {'stopped' if machine else 'gone'}"
            messages += await self.on_dead(node, what, at=now - beats.silent_s[node], fence=what)
        return messages

    async def _probe_silent(self, context: HealthContext, beats: Heartbeats, now: float) -> Messages:
        """Probes the nodes that have been silent long enough and calls `on_dead` for those that do not answer. Returns
        messages."""
        late_s = probe_after_s(context.cluster_context.provider.traits)
        due = [
            n for n, s in beats.silent_s.items() if s >= late_s and now - self.probed_at.get(n, 0.0) >= PROBE_EVERY_S
        ]
        if not due:
            return []
        machines = await context.machines()
        ours = {name: machines[name] for name in context.cluster.slot_names if name in machines}
        started = {name: machine.started_at for name, machine in ours.items() if machine.state is MachineState.RUNNING}
        found = find_suspects(beats, started, now, silent_after_s=late_s, share=context.cluster.health.silent_share)
        self.probed_at.update({node: now for node in due if node not in started or found.hold_reason})
        if found.hold_reason:
            return [("nodes", found.hold_reason)]
        messages: Messages = []
        for node in found.nodes:
            if now - self.probed_at.get(node, 0.0) < PROBE_EVERY_S:
                continue
            self.probed_at[node] = now
            if (
                await self.jobs_are_handled(node)
                or await probe_node(context, node)
                or await _drained_by_person(context, node)
            ):
                continue
            # the probes took seconds: check again whether many nodes are silent by now
            hold = await _mass_silence(context, started, late_s)
            if hold:
                return [*messages, ("nodes", hold)]
            silent_s = beats.silent_s[node]
            fence = (
                ""
                if context.cluster_context.provider.traits.powers_off_machines
                else "its agent lost contact with the head and ended the jobs"
            )
            messages += await self.on_dead(
                node, "no heartbeat, and SSH does not answer", at=now - silent_s, silent_s=silent_s, fence=fence
            )
        return messages


async def _mass_silence(context: HealthContext, started: Mapping[str, float], late_s: float) -> str:
    """Returns why no node is treated as dead: by now many nodes are silent, or the head's heartbeat ages could not be
    read. Returns "" if there is no such reason."""
    try:
        ages = {node: age for node, age in (await read_heartbeat_ages(context)).items() if node in started}
    except HeadwayError as error:
        return f"the head can't report heartbeats: {error.first_line}; no node is changed"
    share = context.cluster.health.silent_share
    silent = {node: age for node, age in ages.items() if age >= QUIET_S}
    fresh = Heartbeats(len(ages) - len(silent), silent)
    return find_suspects(
        fresh, started, context.clock(), silent_after_s=late_s, share=share, quiet_after_s=QUIET_S
    ).hold_reason


async def _drained_by_person(context: HealthContext, node: str) -> bool:
    """Returns whether a person has drained the node and no job runs on it. Headway leaves such a node alone."""
    states, reason = await context.node_state(node)
    return bool(states & OUT) and not is_headway_reason(reason) and not await context.jobs_on(node)
