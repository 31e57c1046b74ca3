"""jobs moved -> repairing -> testing, or out of service: the ladder of repairs, each tried once."""

from __future__ import annotations

from headway.domain.incident import Incident, IncidentState, Repair
from headway.domain.machine import Machine, MachineState
from headway.errors import HeadwayError, Refused, Unreachable
from headway.health.context import Tools, fault_of
from headway.health.incidents import orphaned
from headway.health.incidents.disk_full import roomy, waits_for_room
from headway.health.incidents.remount import mounted
from headway.health.policy import repair_ladder
from headway.store import StoreAway
from headway.transport.connect import HostKeyChanged, SudoRefused

AWAY_S = 20.0  # what a requeued job is given to start on the spare, before its old node is repaired
BOOT_S = 180.0  # from the start of a machine until it has registered
MAKE_S = 600.0  # the same for one that has to be made
RESTART_S = 1800.0  # what a server in a rack takes to test its memory and start; and a person to switch it on
_ASK_S, _ASK_MOST_S, _SLOWER = 5.0, 30.0, 1.2  # whether it has; ever more seldom, for many may be without power
_TICKS = 100  # of a process's start, a second: what the kernel says to programs is the same everywhere
LOOK_S = 1.0
_RESET_S = 120.0
_WORDS = {
    Repair.MOUNT: "its volumes are mounted again as soon as they can be",
    Repair.RESET: "its GPU is reset",
    Repair.REBOOT: "its machine is started again",
    Repair.REPLACE: "its machine is replaced by the provider",
}


async def begin(tools: Tools, incident: Incident) -> Incident:
    """The next repair is begun; out of service when none is left, or when the node has failed too often. Unchanged while
    its jobs are about to start elsewhere: a machine that is back in seconds would get them again, bad or not."""
    number = incident.number
    if not incident.drained:
        words = f"its drain is somebody else's, and so is its repair: headway incident return {number}"
        return await tools.go(incident, IncidentState.OUT, words)
    if await orphaned.nobody_misses(tools, incident.node):
        return await orphaned.end(tools, incident)
    history = await tools.env.store.incidents(tools.cluster.name, node=incident.node)
    why = repair_ladder.lemon(history, tools.cluster.health, tools.clock())
    repair = repair_ladder.next_repair(
        incident, tools.cluster.health, makes_machines=tools.env.provider.traits.creates_machines
    )
    if repair is not None and not why and await _jobs_are_on_their_way(tools, incident):
        return incident
    if repair is Repair.REBOOT and incident.found("runs_again"):
        evidence = {"try": repair.value, "tests": True}
        return await tools.go(incident, IncidentState.TESTING, "its machine runs again: tests begin", evidence=evidence)
    if why or repair is None:
        done = repair_ladder.tried(incident)
        why = why or (
            f"{' and '.join(done)} did not help" if done else f"{incident.action.value}: a person has to look"
        )
        return await tools.go(incident, IncidentState.OUT, f"{why}; once it works: headway incident return {number}")
    if repair is Repair.REPLACE and not await _has_another(tools, incident):
        return await _ask_for_another(tools, incident)
    if repair is Repair.REPLACE:
        repair = Repair.REBOOT  # an apply, say, has made one: that one has to register and is tested
    words = "jobs hold its disk's room until they end" if waits_for_room(incident) else _WORDS[repair]
    return await tools.go(incident, IncidentState.REPAIRING, words, evidence={"try": repair.value})


async def _jobs_are_on_their_way(tools: Tools, incident: Incident) -> bool:
    """To a spare, which is free for them. Only for a moment: a job may have reasons of its own to wait."""
    if not tools.cluster.spares:
        return False
    moved = (await tools.env.store.incident(incident.number)).jobs
    return any(job.running_at is None and tools.clock() - job.requeued_at < AWAY_S for job in moved)


async def carry_out(tools: Tools, incident: Incident) -> str:
    """What went wrong, "" when the node is there again to be tested. Writes nothing; may be begun anew by another server
    and takes no step twice that is done."""
    try:
        match repair_ladder.tried(incident)[-1]:
            case Repair.MOUNT:
                return await mounted(tools, incident.node) or await roomy(tools, incident)
            case Repair.RESET:
                return await _reset(tools, incident)
            case Repair.REBOOT:
                at = incident.found("at") if incident.found("dead") else None
                silent_since = float(at) if isinstance(at, int | float) else None
                await restart(tools, incident.node, _began(incident), silent_since=silent_since)
                return await registered(tools, incident.node, BOOT_S)
            case Repair.REPLACE:
                return await _made(tools, incident) or await registered(tools, incident.node, BOOT_S)
    except HeadwayError as error:
        return fault_of(error)


async def finish(tools: Tools, incident: Incident, fault: str) -> Incident:
    """After `carry_out`."""
    if not fault:
        return await tools.go(incident, IncidentState.TESTING, "tests begin", evidence={"tests": True})
    words = f"{repair_ladder.tried(incident)[-1].value} did not help: {fault}"
    return await tools.go(incident, IncidentState.JOBS_MOVED, words)


async def _reset(tools: Tools, incident: Incident) -> str:
    machine = await tools.machine(incident.node)
    argv = ["nvidia-smi", "--gpu-reset", "-i", str(incident.found("gpu"))]
    ran = await tools.env.connections.remote(machine, argv, timeout_s=_RESET_S, check=False)
    return "" if ran.code == 0 else f"nvidia-smi ended with {ran.code}: {(ran.stdout + ran.stderr).strip()[-200:]}"


async def restart(tools: Tools, node: str, began: float, *, silent_since: float | None = None) -> None:
    """Once: a machine that was started after `began` has been restarted. `silent_since`: of one that was found dead. Raises
    HeadwayError for one that has not come back."""
    provider = tools.env.provider
    machine = (await tools.machines()).get(node)
    if machine is None:
        raise Unreachable(f"{node} has no machine")
    if machine.state is MachineState.RUNNING and machine.started_at >= began > 0:
        return
    if provider.traits.powers_off_machines:
        if machine.state is MachineState.RUNNING:
            await provider.stop(machine)
        await provider.start(machine)
        await tools.env.connections.drop(machine.name)
    else:
        await _restart_itself(tools, machine, began, silent_since)


async def _restart_itself(tools: Tools, machine: Machine, began: float, silent_since: float | None) -> None:
    """One that Headway can't switch off and on is told to restart, and waited for until it has: for a minute more it answers as
    if nothing were. A dead one can't be told; somebody sees to it, or it starts by itself, and it is tested once it answers."""
    began = min(began, silent_since or began)
    ends, pause_s = tools.clock() + RESTART_S, _ASK_S
    answered = told = silent = False
    while True:
        try:
            started_at = await _started_at(tools, machine)
            answered = True
            if silent or started_at >= began:
                return
            if not told:
                ran = await tools.env.connections.remote(machine, ["systemctl", "reboot"], timeout_s=30, check=False)
                if 0 < ran.code < 128:  # more: it was killed with the rest
                    raise Refused(f"{machine.name} does not restart: {(ran.stderr or ran.stdout).strip()[-200:]}")
                told = True
            fault = f"{machine.name} was told to restart, and has not"
        except (Refused, HostKeyChanged, SudoRefused):  # no try will do better, and wrong passwords lock accounts
            raise
        except HeadwayError as error:
            silent = silent or (silent_since is not None and not answered)
            fault = fault_of(error)
        if tools.clock() >= ends:
            raise Unreachable(f"{fault}, for {RESTART_S / 60:.0f} minutes")
        await tools.env.connections.drop(machine.name)
        await tools.sleep(pause_s)
        pause_s = min(pause_s * _SLOWER, _ASK_MOST_S)


async def _started_at(tools: Tools, machine: Machine) -> float:
    """When its first process started, in unix seconds by our own clock: a container has its host's kernel."""
    ran = await tools.env.connections.remote(machine, ["cat", "/proc/uptime", "/proc/1/stat"], timeout_s=10)
    uptime, _, init = ran.stdout.partition("\n")
    try:
        started_s = int(init.rpartition(")")[2].split()[19]) / _TICKS
        return tools.clock() - (float(uptime.split()[0]) - started_s)
    except (ValueError, IndexError):
        raise Unreachable(f"{machine.name} does not say since when it runs") from None


async def switch_on(tools: Tools, node: str) -> None:
    """Starts a machine that does not run, where the provider can: fencing may have stopped it."""
    machine = (await tools.machines()).get(node)
    if machine is None or machine.state is MachineState.RUNNING or not tools.env.provider.traits.powers_off_machines:
        return
    await tools.env.provider.start(machine)
    await tools.env.connections.drop(machine.name)


async def booted(tools: Tools, node: str) -> None:
    """Until a machine that was started a moment ago, by whomever, serves or has had its time to."""
    machine = (await tools.machines()).get(node)
    left_s = machine.started_at + BOOT_S - tools.clock() if machine is not None else 0.0
    if left_s > 0:
        await registered(tools, node, left_s)


async def _has_another(tools: Tools, incident: Incident) -> bool:
    """Whether somebody else has made or started a machine in its place since the last repair of a dead node."""
    machine = (await tools.machines()).get(incident.node)
    if machine is None or machine.state is not MachineState.RUNNING:
        return False
    return bool(incident.found("dead")) and machine.started_at > incident.current[-1].at


async def _ask_for_another(tools: Tools, incident: Incident) -> Incident:
    """The machine is deleted, and an operation makes another one: that alone, whatever else waits for a person's word."""
    store, name = tools.env.store, tools.cluster.name
    machine = (await tools.machines()).get(incident.node)
    if machine is not None:
        await tools.env.provider.delete(machine)
        await tools.env.connections.drop(machine.name)
    operation = await store.enqueue_operation(name, "replace", "headway", params={"node": incident.node})
    evidence = {"try": Repair.REPLACE.value, "operation": operation.id}
    await store.forgive(name, incident.node)
    return await tools.go(incident, IncidentState.REPAIRING, _WORDS[Repair.REPLACE], evidence=evidence)


async def _made(tools: Tools, incident: Incident) -> str:
    number = str(incident.found("operation"))
    for _ in range(int(MAKE_S / LOOK_S)):
        try:
            operation = await tools.env.store.operation(number)
        except StoreAway:
            await tools.sleep(LOOK_S)
            continue
        if operation.state not in {"queued", "running"}:
            if operation.error is None:
                return ""
            return (
                f"the operation that was to make it failed: {str(operation.error.get('message', '')).splitlines()[0]}"
            )
        await tools.sleep(LOOK_S)
    return f"the operation that was to make it ({number}) has not ended within {MAKE_S:.0f} s"


async def registered(tools: Tools, node: str, within_s: float) -> str:
    """Until slurmd has spoken to the controller and the machine answers. A container's slurmd may be heard of before
    its boot has ended: SSH is asked too."""
    ends = tools.clock() + within_s
    fault = "it has not registered with Slurm"
    while True:
        try:
            states, _ = await tools.node_now(node)
            if "NOT_RESPONDING" not in states:
                argv = ["systemctl", "is-active", "slurmd", "munge"]
                ran = await tools.env.connections.remote(await tools.machine(node), argv, timeout_s=10, check=False)
                if ran.code == 0:
                    return ""
                fault = "slurmd or munge does not run"
        except HeadwayError as error:
            fault = fault_of(error)
        if tools.clock() >= ends:
            return fault
        await tools.sleep(LOOK_S)


def _began(incident: Incident) -> float:
    """From when on a start of its machine counts as this repair. One that was found dead may have been started or made by
    somebody else meanwhile, such as an apply: it must not be stopped under them."""
    steps = incident.current
    begun = max(i for i, step in enumerate(steps) if step.evidence.get("try"))
    if not incident.found("dead"):
        return steps[begun].at
    return steps[begun - 1 if len(repair_ladder.tried(incident)) > 1 else 0].at
