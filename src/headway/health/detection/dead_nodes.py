"""Nodes that are not heard of any more: which of them are dead. The machine is looked at, then the node itself is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from headway.domain.incident import own
from headway.domain.machine import MachineState
from headway.domain.slurm.state import OUT
from headway.errors import HeadwayError
from headway.health.context import Tools
from headway.health.detection.event_stream import Beats
from headway.health.detection.probe import ages, answers
from headway.health.detection.silence_rules import ASK_AGAIN_S, LEASE_OVER_S, LOOK_AGAIN_S, QUIET_S, SILENT_S, suspects

Said = list[tuple[str, str]]  # (node or job, words) for people to read


@dataclass
class Unheard:
    """One cluster's. `led`: whether an incident of the node has dealt with its jobs already. `dead`: what is done about one."""

    led: Callable[[str], Awaitable[bool]]
    dead: Callable[..., Awaitable[Said]]
    asked: dict[str, float] = field(default_factory=dict)  # when silent nodes were last asked
    looked: dict[str, float] = field(default_factory=dict)  # when their machines were last looked at

    async def hear(self, tools: Tools, beats: Beats, now: float) -> Said:
        """Nodes that neither beat nor answer are dead. Where the provider can't fence, their agent has ended their jobs by
        then."""
        return await self._without_machine(tools, beats, now) + await self._without_answer(tools, beats, now)

    async def _without_machine(self, tools: Tools, beats: Beats, now: float) -> Said:
        """Where the provider knows that the machine does not run nobody has to be asked, however short the silence."""
        known = (name for name in beats.silent if name in tools.cluster.slot_names)
        new = [name for name in known if now - self.looked.get(name, 0.0) >= LOOK_AGAIN_S]
        if not new or beats.relay_s is not None:
            return []
        self.looked.update(dict.fromkeys(new, now))
        machines = await tools.machines()
        said: Said = []
        for node in new:
            machine = machines.get(node)
            if (machine and machine.state is MachineState.RUNNING) or await _somebody_elses(tools, node):
                continue
            what = f"its machine is {'stopped' if machine else 'gone'}"
            said += await self.dead(node, what, at=now - beats.silent[node], fence=what)
        return said

    async def _without_answer(self, tools: Tools, beats: Beats, now: float) -> Said:
        late_s = SILENT_S if tools.env.provider.traits.powers_off_machines else LEASE_OVER_S
        due = [n for n, s in beats.silent.items() if s >= late_s and now - self.asked.get(n, 0.0) >= ASK_AGAIN_S]
        if not due:
            return []
        machines = await tools.machines()
        ours = {name: machines[name] for name in tools.cluster.slot_names if name in machines}
        started = {name: one.started_at for name, one in ours.items() if one.state is MachineState.RUNNING}
        found = suspects(beats, started, now, late_s=late_s, share=tools.cluster.health.silent_share)
        self.asked.update({node: now for node in due if node not in started or found.hold})
        if found.hold:
            return [("nodes", found.hold)]
        said: Said = []
        for node in found.nodes:
            if now - self.asked.get(node, 0.0) < ASK_AGAIN_S:
                continue
            self.asked[node] = now
            if await self.led(node) or await answers(tools, node) or await _somebody_elses(tools, node):
                continue
            hold = await _others_too(tools, started, late_s)  # asking took its time
            if hold:
                return [*said, ("nodes", hold)]
            silent_s = beats.silent[node]
            fence = (
                ""
                if tools.env.provider.traits.powers_off_machines
                else "its agent has ended its jobs for want of contact"
            )
            said += await self.dead(
                node, "no heartbeat, and SSH does not answer", at=now - silent_s, silent_s=silent_s, fence=fence
            )
        return said


async def _others_too(tools: Tools, started: Mapping[str, float], late_s: float) -> str:
    """Why nothing is done: meanwhile many others are silent, or nobody can tell."""
    try:
        heard = {node: age for node, age in (await ages(tools)).items() if node in started}
    except HeadwayError as error:
        return f"the head can't say who is heard: {error.message.splitlines()[0]}; nothing is done"
    share = tools.cluster.health.silent_share
    silent = {node: age for node, age in heard.items() if age >= QUIET_S}
    fresh = Beats(len(heard) - len(silent), silent)
    return suspects(fresh, started, tools.clock(), late_s=late_s, share=share, quiet_s=QUIET_S).hold


async def _somebody_elses(tools: Tools, node: str) -> bool:
    """A person has taken it out of service and nothing runs on it: what they do with it is theirs."""
    states, reason = await tools.node_now(node)
    return bool(states & OUT) and not own(reason) and not await tools.jobs_on(node)
