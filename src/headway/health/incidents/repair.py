"""jobs moved -> repairing -> testing or out of service: runs the repair ladder, each repair once."""

from __future__ import annotations

from headway.cluster.owned import host_containers
from headway.domain.incident import Incident, IncidentState, Repair
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_kinds import OperationKind, ReplaceParams
from headway.errors import HeadwayError, Refused, Unreachable
from headway.health.context import HealthContext, fault_text
from headway.health.incidents import machine_gone
from headway.health.incidents.storage.disk_full import wait_for_disk_space, waits_for_disk_space
from headway.health.incidents.storage.remount import remount_volumes
from headway.health.policy import flaky_score, repair_ladder
from headway.health.policy.repair_time_limits import BOOT_S, JOBS_START_S, REPLACE_S, RESET_S, RESTART_S
from headway.schemas.base import ErrorOut
from headway.store import StoreUnavailable
from headway.transport.connect import HostKeyChanged, SudoRefused

# pause between probes; it grows, because many machines may be without power at once
_PROBE_S, _PROBE_MAX_S, _BACKOFF = 5.0, 30.0, 1.2
_TICKS = 100  # ticks per second in /proc/PID/stat: the kernel reports 100 to programs on every machine
POLL_S = 1.0
_WORDS = {
    Repair.MOUNT: "its volumes are mounted again as soon as possible",
    Repair.RESET: "its GPU is reset",
    Repair.REBOOT: "its machine is restarted",
    Repair.REPLACE: "its machine is replaced by the provider",
}


async def begin_repair(context: HealthContext, incident: Incident) -> Incident:
    """Starts the next repair, or takes the node out of service when no repair is left or the node failed too often.
    Returns the incident unchanged while its jobs are about to start on a spare."""
    number = incident.number
    if not incident.drained:
        words = f"the node was drained by a person, who also decides about its repair: headway incident return {number}"
        return await context.add_step(incident, IncidentState.OUT, words)
    if await machine_gone.machine_is_surplus(context, incident.node):
        return await machine_gone.close_as_surplus(context, incident)
    history = await context.cluster_context.store.incidents.search(context.cluster.name, node=incident.node)
    why = flaky_score.keep_out_reason(history, context.cluster.health, context.clock())
    repair = repair_ladder.next_repair(
        incident,
        context.cluster.health,
        makes_machines=context.cluster_context.traits_of(context.cluster, incident.node).creates_machines,
    )
    if repair is not None and not why and await _jobs_wait_for_spare(context, incident):
        return incident
    if repair is Repair.REBOOT and incident.found("runs_again"):
        evidence = {"try": repair.value, "tests": True}
        return await context.add_step(
            incident, IncidentState.TESTING, "its machine runs again: tests begin", evidence=evidence
        )
    if why or repair is None:
        done = repair_ladder.tried_repairs(incident)
        why = why or (
            f"{' and '.join(done)} did not help" if done else f"{incident.action.value}: it needs an operator"
        )
        return await context.add_step(
            incident, IncidentState.OUT, f"{why}; when the node works, run headway incident return {number}"
        )
    if repair is Repair.REPLACE and not await _has_new_machine(context, incident):
        return await _request_replacement(context, incident)
    if repair is Repair.REPLACE:
        repair = Repair.REBOOT  # an apply, for example, has created a machine: it has to register and is tested
    if waits_for_disk_space(incident):
        words = "files of running jobs fill its disk until the jobs end"
    else:
        words = await _repair_words(context, incident, repair)
    return await context.add_step(incident, IncidentState.REPAIRING, words, evidence={"try": repair.value})


async def _repair_words(context: HealthContext, incident: Incident, repair: Repair) -> str:
    """Returns what the repair does. A machine in a container restarts with its host; a silent one is restarted there first."""
    machine = (await context.machines()).get(incident.node)
    if repair is not Repair.REBOOT or machine is None or machine.host is None:
        return _WORDS[repair]
    host = machine.host.address
    if incident.found("dead"):
        return f"its container on host {host} is restarted, or the host with all that runs there if the machine answers again"
    return f"its host {host} is rebooted, with all that runs there"


async def _jobs_wait_for_spare(context: HealthContext, incident: Incident) -> bool:
    """Returns whether requeued jobs are about to start on a spare. Waits JOBS_START_S at most, because a job may have
    other reasons to wait."""
    if not context.cluster.spares:
        return False
    moved = (await context.cluster_context.store.incidents.get(incident.number)).jobs
    return any(job.running_at is None and context.clock() - job.requeued_at < JOBS_START_S for job in moved)


async def run_repair(context: HealthContext, incident: Incident) -> str:
    """Runs the current repair. Returns what went wrong, "" when the node can be tested. Writes nothing to the store, so
    that another server can run it again."""
    try:
        match repair_ladder.tried_repairs(incident)[-1]:
            case Repair.MOUNT:
                return await remount_volumes(context, incident.node) or await wait_for_disk_space(context, incident)
            case Repair.RESET:
                return await _reset(context, incident)
            case Repair.REBOOT:
                at = incident.found("at") if incident.found("dead") else None
                silent_since = float(at) if isinstance(at, int | float) else None
                await restart_machine(context, incident.node, _repair_began(incident), silent_since=silent_since)
                return await wait_until_registered(context, incident.node, BOOT_S)
            case Repair.REPLACE:
                return await _wait_for_replacement(context, incident) or await wait_until_registered(
                    context, incident.node, BOOT_S
                )
    except HeadwayError as error:
        return fault_text(error)


async def finish_repair(context: HealthContext, incident: Incident, fault: str) -> Incident:
    """Records the result of `run_repair`: starts the tests, or leaves the node to the next repair."""
    if not fault:
        return await context.add_step(incident, IncidentState.TESTING, "tests begin", evidence={"tests": True})
    words = f"{repair_ladder.tried_repairs(incident)[-1].value} did not help: {fault}"
    return await context.add_step(incident, IncidentState.JOBS_MOVED, words)


async def _reset(context: HealthContext, incident: Incident) -> str:
    """Resets the incident's GPU with nvidia-smi. Returns the fault, "" on success."""
    machine = await context.running_machine(incident.node)
    argv = ["nvidia-smi", "--gpu-reset", "-i", str(incident.found("gpu"))]
    ran = await context.cluster_context.connections.remote(machine, argv, timeout_s=RESET_S, check=False)
    return "" if ran.code == 0 else f"nvidia-smi ended with {ran.code}: {(ran.stdout + ran.stderr).strip()[-200:]}"


async def restart_machine(
    context: HealthContext, node: str, not_before: float, *, silent_since: float | None = None
) -> None:
    """Restarts the machine unless it already started after `not_before`. Waits while an apply sets the machine up.
    `silent_since`: the last heartbeat of a dead node, in unix seconds. Raises HeadwayError if the machine does not come
    back."""
    async with context.cluster_context.machine_locks[node]:
        await _restart_unlocked(context, node, not_before, silent_since)


async def _restart_unlocked(context: HealthContext, node: str, not_before: float, silent_since: float | None) -> None:
    provider = context.cluster_context.provider
    machine = (await context.machines()).get(node)
    if machine is None:
        raise Unreachable(f"{node} has no machine")
    if machine.state is MachineState.RUNNING and machine.started_at >= not_before > 0:
        return
    if provider.traits.powers_off_machines:
        if machine.state is MachineState.RUNNING:
            await provider.stop(machine)
        await provider.start(machine)
        await context.cluster_context.connections.drop(machine.name)
    else:
        await _reboot_over_ssh(context, machine, not_before, silent_since)


async def _reboot_over_ssh(context: HealthContext, machine: Machine, began: float, silent_since: float | None) -> None:
    """Reboots a machine that Headway can't switch off and on, and waits until it has restarted. The machine may still
    answer for up to a minute after the command. A dead machine can't receive the command: it starts by itself or a
    person starts it, and it is tested once it answers. Raises HeadwayError after RESTART_S."""
    began = min(began, silent_since or began)
    ends, pause_s = context.clock() + RESTART_S, _PROBE_S
    answered = sent = silent = False
    while True:
        try:
            started_at = await _started_at(context, machine)
            answered = True
            if silent or started_at >= began:
                return
            if not sent:
                # A container restarts with its host; a GPU is only reset by the host's restart.
                whole = machine.host or machine
                ran = await context.cluster_context.connections.remote(
                    whole, ["systemctl", "reboot"], timeout_s=30, check=False
                )
                if 0 < ran.code < 128:  # 128 or more: the command was killed by the shutdown
                    raise Refused(f"{machine.name} does not restart: {(ran.stderr or ran.stdout).strip()[-200:]}")
                sent = True
            fault = f"{machine.name} did not restart when asked to"
        except (Refused, HostKeyChanged, SudoRefused):  # another try would fail too, and wrong passwords lock accounts
            raise
        except HeadwayError as error:
            silent = silent or (silent_since is not None and not answered)
            fault = fault_text(error)
            if machine.host is not None and not sent:
                sent = await _restart_container(context, machine.host)
        if context.clock() >= ends:
            raise Unreachable(f"{fault}, for {RESTART_S / 60:.0f} minutes")
        await context.cluster_context.connections.drop(machine.name)
        await context.sleep(pause_s)
        pause_s = min(pause_s * _BACKOFF, _PROBE_MAX_S)


async def _restart_container(context: HealthContext, host: Machine) -> bool:
    """Restarts a machine that does not answer on a host that may. Returns whether the host did it."""
    try:
        await host_containers.restart_container(context.cluster_context, host)
    except HeadwayError:
        return False
    return True


async def _started_at(context: HealthContext, machine: Machine) -> float:
    """Returns when the machine's first process started, in unix seconds of the server's clock. The kernel's boot time
    would be wrong for a container, which shares its host's kernel."""
    ran = await context.cluster_context.connections.remote(
        machine, ["cat", "/proc/uptime", "/proc/1/stat"], timeout_s=10
    )
    uptime, _, init = ran.stdout.partition("\n")
    try:
        started_s = int(init.rpartition(")")[2].split()[19]) / _TICKS
        return context.clock() - (float(uptime.split()[0]) - started_s)
    except (ValueError, IndexError):
        raise Unreachable(f"{machine.name} does not report its start time") from None


async def start_machine(context: HealthContext, node: str) -> None:
    """Starts a stopped machine if the provider can. Fencing may have stopped it."""
    machine = (await context.machines()).get(node)
    if (
        machine is None
        or machine.state is MachineState.RUNNING
        or not context.cluster_context.provider.traits.powers_off_machines
    ):
        return
    await context.cluster_context.provider.start(machine)
    await context.cluster_context.connections.drop(machine.name)


async def wait_until_booted(context: HealthContext, node: str) -> None:
    """Waits until a recently started machine has registered with Slurm, or until its boot time is over."""
    machine = (await context.machines()).get(node)
    left_s = machine.started_at + BOOT_S - context.clock() if machine is not None else 0.0
    if left_s > 0:
        await wait_until_registered(context, node, left_s)


async def _has_new_machine(context: HealthContext, incident: Incident) -> bool:
    """Returns whether a dead node's machine was created or started outside of this incident since its last repair."""
    machine = (await context.machines()).get(incident.node)
    if machine is None or machine.state is not MachineState.RUNNING:
        return False
    return bool(incident.found("dead")) and machine.started_at > incident.current[-1].at


async def _request_replacement(context: HealthContext, incident: Incident) -> Incident:
    """Deletes the machine and enqueues an operation that creates another one. The operation does only that, even if
    other changes wait for approval."""
    store, name = context.cluster_context.store, context.cluster.name
    machine = (await context.machines()).get(incident.node)
    if machine is not None:
        await context.cluster_context.provider.delete(machine)
        await context.cluster_context.connections.drop(machine.name)
    operation = await store.operations.enqueue(
        name, OperationKind.REPLACE, "headway", params=ReplaceParams(incident.node).to_json()
    )
    evidence = {"try": Repair.REPLACE.value, "operation": operation.id}
    await store.incidents.reset_score(name, incident.node)
    return await context.add_step(incident, IncidentState.REPAIRING, _WORDS[Repair.REPLACE], evidence=evidence)


async def _wait_for_replacement(context: HealthContext, incident: Incident) -> str:
    """Waits for the operation that creates the machine. Returns "", or why the machine is missing after REPLACE_S."""
    number = str(incident.found("operation"))
    for _ in range(int(REPLACE_S / POLL_S)):
        try:
            operation = await context.cluster_context.store.operations.get(number)
        except StoreUnavailable:
            await context.sleep(POLL_S)
            continue
        if operation.state not in {"queued", "running"}:
            if operation.error is None:
                return ""
            return f"the operation that creates it failed: {ErrorOut.model_validate(operation.error).first_line}"
        await context.sleep(POLL_S)
    return f"the operation that creates it ({number}) did not end within {REPLACE_S:.0f} s"


async def wait_until_registered(context: HealthContext, node: str, within_s: float) -> str:
    """Waits until slurmd has registered and SSH answers. Returns "", or what is missing after `within_s` seconds."""
    ends = context.clock() + within_s
    fault = "it has not registered with Slurm"
    while True:
        try:
            states, _ = await context.node_state(node)
            if "NOT_RESPONDING" not in states:
                argv = ["systemctl", "is-active", "slurmd", "munge"]
                ran = await context.cluster_context.connections.remote(
                    await context.running_machine(node), argv, timeout_s=10, check=False
                )
                if ran.code == 0:
                    return ""
                fault = "slurmd or munge is not running"
        except HeadwayError as error:
            fault = fault_text(error)
        if context.clock() >= ends:
            return fault
        await context.sleep(POLL_S)


def _repair_began(incident: Incident) -> float:
    """Returns the time from which a start of the machine counts as this repair, in unix seconds. A dead node's machine
    may have been started or created by something else meanwhile, such as an apply, and must not be stopped again."""
    steps = incident.current
    begun = max(i for i, step in enumerate(steps) if step.evidence.get("try"))
    if not incident.found("dead"):
        return steps[begun].at
    return steps[begun - 1 if len(repair_ladder.tried_repairs(incident)) > 1 else 0].at
