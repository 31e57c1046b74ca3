"""What Headway tells Slurm: argv on the head, over SSH. Nothing here decides; health and cluster do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence

from headway.domain.machine import Machine
from headway.domain.slurm.hostlist import compress, expand
from headway.domain.slurm.state import LEMONS, OUT, SPARES
from headway.errors import CommandFailed
from headway.transport.process import Ran
from headway.transport.ssh import Remote

# IGNORE_JOBS: it may be put on nodes with running jobs, which it leaves alone. Not MAINT: that would show a healthy
# spare as being under maintenance; without it sinfo says "resv". Lemons are everybody's who asks for them. OVERLAP: a lemon
# may just have been a spare, and somebody's own reservation, for tomorrow say, may name any node.
_FLAGS = "Flags=IGNORE_JOBS,OVERLAP"
_OPTIONS = {SPARES: ("Users=root", "StartTime=now"), LEMONS: ("Accounts=root", "StartTime=now")}
_NO_END = "EndTime=2100-01-01"  # "infinite" is one year to Slurm: the spares would then become ordinary nodes
_TIMEOUT_S = 30.0
_TEST_MINUTES = 4  # then Slurm forgets the reservation by itself
# In which a job holds something of its nodes. squeue takes RUNNING as without any flag: a job that runs and was stopped, or is
# being resized, is found by the flag's own word alone.
_HOLDS = ("RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "RESIZING", "SIGNALING")
_ENDS = ("COMPLETING", "STAGE_OUT")
_ENDED = ("COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY")  # by itself, or with its node
# Of a requeue: --no-requeue; an allocation without a batch script; a part of a heterogeneous job.
_NEVER = ("presently disabled", "only batch jobs", "heterogeneous job")
_WAITS = "job is pending execution"  # also while it still ends: it was requeued already
_FORGOTTEN = "invalid job id"
_IN_USE = "reservation is in use"
GIVEN_UP = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})  # by somebody's word, or by what the job itself asked for
_NODES = re.compile(r"\bNodes=(\S+)")
_NODE_STATE = re.compile(r"\bState=(\S+)")
# Who said it, and when, stands behind it in brackets; then fields that only some nodes have: Comment=, Extra=, InstanceId=,
# InstanceType=, ReservationName=.
_NODE_REASON = re.compile(r"\bReason=(.*?)(?: \[[^\]\s]+@[^\]]*\](?: +\w+=.*)?)?\s*$", re.MULTILINE)
_JOB_STATE = re.compile(r"\bJobState=(\S+)")
_TASK = re.compile(r"\d+_\d+")
_EXIT_CODE = re.compile(r"\bExitCode=(\d+):(\d+)")  # exit code:signal
_REFUSED = ("1", "0")  # slurmctld's own word for a batch job that its node would not launch
# Of a task of an array it says JobId=7_3(12), and 12 is the task's own number.
_UNSTARTED = re.compile(r"non-startable batch JobId=(\d+)(?:_[^\s(:]*)?(?:\((\d+)\))?")
_BOOT_TIME = re.compile(r"^BOOT_TIME\s*=\s*(\d+)", re.MULTILINE)
_UNIX_TIMES = ("env", "SLURM_TIME_FORMAT=%s")


async def node_down(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """Its jobs end at once; those that may be requeued are."""
    await _scontrol(connections, head, "update", f"NodeName={node}", "State=DOWN", f"Reason={_line(reason)}")


async def node_drain(connections: Remote, head: Machine, node: str, reason: str) -> None:
    """No new job starts there; running ones go on."""
    await _scontrol(connections, head, "update", f"NodeName={node}", "State=DRAIN", f"Reason={_line(reason)}")


async def node_resume(connections: Remote, head: Machine, node: str) -> None:
    """Back to service from DOWN, DRAIN or FAIL; nothing happens to a node that is in service."""
    ran = await _scontrol(connections, head, "update", f"NodeName={node}", "State=RESUME", check=False)
    if ran.code != 0 and "invalid node state" not in ran.stderr.lower():
        raise CommandFailed(ran.argv, ran.code, ran.stderr, where=head.name)


async def return_own(connections: Remote, head: Machine, node: str, ours: Callable[[str], bool]) -> str:
    """Back to service where the reason for which it is out, read this moment, is one of `ours`. Otherwise that reason: a person
    has said it, perhaps since somebody looked last, and theirs it is to lift it."""
    states, reason = await node_now(connections, head, node)
    if states & OUT and not ours(reason):
        return reason or "no reason given"
    await node_resume(connections, head, node)
    return ""


async def node_now(connections: Remote, head: Machine, node: str) -> tuple[frozenset[str], str]:
    """(states, reason) as the controller has them this moment."""
    ran = await _scontrol(connections, head, "--oneliner", "show", "node", node)
    state = _NODE_STATE.search(ran.stdout)
    reason = _NODE_REASON.search(ran.stdout)
    words = state[1] if state else ""
    silent = {"NOT_RESPONDING"} if "*" in words else set()
    return frozenset(words.replace("*", "").split("+")) | silent, reason[1] if reason else ""


async def jobs_on(connections: Remote, head: Machine, node: str, *, ending: bool = True) -> tuple[int, ...]:
    """Jobs that hold something of the node: running, suspended or (`ending`) completing. A task of an array by its own
    id."""
    return tuple(sorted(await batch_hosts(connections, head, node, ending=ending)))


async def last_on(connections: Remote, head: Machine, node: str) -> set[int]:
    """Jobs that hold something of the node, and those whose last run ended there within the last minutes (MinJobAge) without
    anybody's word."""
    states = (*_HOLDS, *_ENDS, *_ENDED)
    return set(await _hosts(connections, head, node, states))


async def batch_hosts(connections: Remote, head: Machine, node: str, *, ending: bool = True) -> dict[int, str]:
    """The same jobs, each with the node where its batch script runs."""
    return await _hosts(connections, head, node, _HOLDS + _ENDS if ending else _HOLDS)


async def _hosts(connections: Remote, head: Machine, node: str, states: Sequence[str]) -> dict[int, str]:
    argv = ["squeue", "--all", "--noheader", f"--nodelist={node}", f"--states={','.join(states)}", "--format=%A %B"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    rows = (line.split() for line in ran.stdout.splitlines())
    return {int(row[0]): row[1] for row in rows if len(row) == 2}


async def busy_nodes(connections: Remote, head: Machine) -> dict[str, tuple[int, ...]]:
    """Node -> jobs that hold something of it, those that are completing too."""
    argv = ["squeue", "--all", "--noheader", f"--states={','.join(_HOLDS + _ENDS)}", "--format=%A %N"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    found: dict[str, set[int]] = {}
    for line in ran.stdout.splitlines():
        number, _, nodes = line.partition(" ")
        for name in expand(nodes.strip()):
            found.setdefault(name, set()).add(int(number))
    return {name: tuple(sorted(jobs)) for name, jobs in found.items()}


async def queued(connections: Remote, head: Machine, partitions: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Partition -> jobs that run or wait in it, those that may go to several by each."""
    if not partitions:
        return {}
    argv = ["squeue", "--all", "--noheader", f"--partition={','.join(partitions)}", "--format=%A %P"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    found: dict[str, set[int]] = {}
    for line in ran.stdout.splitlines():
        number, _, names = line.partition(" ")
        for name in set(names.strip().split(",")) & set(partitions):
            found.setdefault(name, set()).add(int(number))
    return {name: tuple(sorted(jobs)) for name, jobs in found.items()}


async def nodes_drain(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """As `node_drain`, many at once."""
    await _update_nodes(connections, head, names, "State=DRAIN", f"Reason={_line(reason)}")


async def nodes_down(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """As `node_down`, many at once."""
    await _update_nodes(connections, head, names, "State=DOWN", f"Reason={_line(reason)}")


async def nodes_gone(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Down without a drain: nothing is left there to wait for."""
    await nodes_down(connections, head, names, reason)
    if names:
        await _scontrol(connections, head, "update", f"NodeName={compress(names)}", "State=UNDRAIN", check=False)
        await nodes_down(connections, head, names, reason)  # the end of the drain took its reason along


async def node_awake(connections: Remote, head: Machine, name: str) -> None:
    """A node that Slurm has as switched off is on its way up."""
    ran = await connections.remote(
        head, ["sinfo", "--all", "--noheader", f"--nodes={name}", "--format=%T"], timeout_s=_TIMEOUT_S
    )
    if ran.stdout.strip().endswith("~"):
        await _scontrol(connections, head, "update", f"NodeName={name}", "State=POWER_UP")


async def nodes_close(connections: Remote, head: Machine, names: Sequence[str], reason: str) -> None:
    """Not to be asked for: down, which a power-down leaves as it is (a drain it takes away). Jobs that wait there for a
    machine go back to the queue."""
    await nodes_down(connections, head, names, reason)
    await _let_sleep(connections, head, names)


async def nodes_open(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Slots without a machine that Slurm may ask for again."""
    for name in names:
        await _scontrol(connections, head, "update", f"NodeName={name}", "State=RESUME", check=False)
    await _let_sleep(connections, head, names)


async def node_sleeps(connections: Remote, head: Machine, name: str) -> None:
    """A slot whose machine is gone, and that Slurm may ask for: switched off, with which a drain of it ends."""
    await _let_sleep(connections, head, [name])


async def _let_sleep(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    states = await node_reasons(connections, head)
    for name in names:
        if not states.get(name, ("~", ""))[0].endswith(("~", "%")):
            await _scontrol(connections, head, "update", f"NodeName={name}", "State=POWER_DOWN_FORCE", check=False)


async def node_reasons(connections: Remote, head: Machine) -> dict[str, tuple[str, str]]:
    """Node -> (its state as sinfo has it, the reason; "none" where there is none)."""
    argv = ["sinfo", "--all", "--noheader", "--Node", "--format=%N|%T|%E"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    rows = (line.strip().split("|", 2) for line in ran.stdout.splitlines())
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def serves(word: str) -> bool:
    """Whether a node with this state of sinfo's takes jobs, or has one. Under somebody's maintenance it is an idle node as
    well: "maint", or as it is else with a "$" where it has jobs."""
    out = ("down", "drain", "fail", "unknown", "inval", "power", "future")
    word = word.removesuffix("$")
    return bool(word) and not word.startswith(out) and not word.endswith(("*", "~", "#", "%", "!", "@", "^"))


async def _update_nodes(connections: Remote, head: Machine, names: Sequence[str], *what: str) -> None:
    if names:
        await _scontrol(connections, head, "update", f"NodeName={compress(names)}", *what)


async def job_word(connections: Remote, head: Machine, job_id: int) -> str:
    """The job's state in Slurm's word; "" when the controller has forgotten it."""
    found = _JOB_STATE.search(await _shown(connections, head, job_id))
    return found[1] if found else ""


def holds(word: str) -> bool:
    """Whether a job in this state, Slurm's word, has nodes and has not begun to end."""
    return word in _HOLDS


async def ends_badly(connections: Remote, head: Machine, job_id: int) -> bool:
    """Whether a job that is completing has failed: it left an exit code that is not 0."""
    shown = await _shown(connections, head, job_id)
    code = _EXIT_CODE.search(shown)
    return "JobState=COMPLETING" in shown and code is not None and code[1] != "0"


async def accounted(connections: Remote, head: Machine, jobs: Iterable[int]) -> dict[int, str]:
    """How accounting has it that they ended: also while they are completing, where the controller's word is that alone, and a
    requeue would bring them back. {} where it does not answer."""
    argv = ["sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(map(str, sorted(jobs)))]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S, check=False)
    rows = (line.split("|") for line in ran.stdout.splitlines())
    return {int(row[0]): row[1].split(" ")[0] for row in rows if len(row) == 2 and row[0].isdigit()}


async def was_killed(connections: Remote, head: Machine, job_id: int, since: int) -> bool:
    """Whether a job that failed was ended by signal 9, or its script by a task's, or was never begun: its node refused to
    launch it, as the log of slurmctld says `since` that unix second."""
    found = _EXIT_CODE.search(await _shown(connections, head, job_id))
    code = found.groups() if found else ()
    return code in {("0", "9"), ("137", "0")} or (code == _REFUSED and await _refused(connections, head, job_id, since))


async def _refused(connections: Remote, head: Machine, job_id: int, since: int) -> bool:
    argv = ["journalctl", "--unit=slurmctld", "--no-pager", "--output=cat", f"--since=@{since}", "--grep=non-startable"]
    ran = await connections.remote(head, argv, check=False, timeout_s=_TIMEOUT_S)
    return any(int(one[2] or one[1]) == job_id for one in _UNSTARTED.finditer(ran.stdout))


async def failed_on(connections: Remote, head: Machine, node: str) -> dict[int, int]:
    """Jobs of this node that failed within the last minutes (MinJobAge), each with the unix second of its end."""
    argv = [*_UNIX_TIMES, "squeue", "--all", "--noheader", f"--nodelist={node}", "--states=FAILED", "--format=%A %e"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    rows = (line.split() for line in ran.stdout.splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


async def controller_started_at(connections: Remote, head: Machine) -> int:
    """Unix seconds; 0 where it does not say."""
    argv = [*_UNIX_TIMES, "scontrol", "show", "config"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    found = _BOOT_TIME.search(ran.stdout)
    return int(found[1]) if found else 0


async def leads_since(connections: Remote, head: Machine, leads: str) -> int:
    """When one of two heads began to lead, in unix seconds, 0 where none has: a controller that stood by was started long before.
    `leads`: the file that it left its name in then."""
    ran = await connections.remote(head, ["stat", "-c", "%Y", leads], timeout_s=_TIMEOUT_S, check=False)
    return int(ran.stdout) if ran.code == 0 else 0


async def reserved(connections: Remote, head: Machine, name: str = SPARES) -> tuple[str, ...]:
    """The nodes that this reservation of Headway's holds now, () when there is none."""
    ran = await _scontrol(connections, head, "--oneliner", "show", "reservation", name, check=False)
    if ran.code != 0:
        if "not found" in (ran.stdout + ran.stderr).lower():
            return ()
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)
    match = _NODES.search(ran.stdout)
    return tuple(expand(match[1])) if match and match[1] != "(null)" else ()


async def reserve(connections: Remote, head: Machine, names: Sequence[str], name: str = SPARES) -> None:
    """Makes the reservation hold exactly these nodes; without any it goes away. Running jobs are not disturbed: where one that
    waits or runs names it, it stays as it is, and whoever looks again finds it there."""
    held = await reserved(connections, head, name)
    if set(held) == set(names):
        return
    if not names:
        ran = await _scontrol(connections, head, "delete", f"ReservationName={name}", check=False)
        if ran.code != 0 and _IN_USE not in ran.stderr.lower():
            raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)
        return
    what = (f"ReservationName={name}", f"Nodes={compress(names)}", _NO_END, _FLAGS)
    if held:
        await _scontrol(connections, head, "update", "reservation", *what)
    else:
        await _scontrol(connections, head, "create", "reservation", *what, *_OPTIONS[name])


async def idle_nodes(connections: Remote, head: Machine) -> tuple[str, ...]:
    """Nodes in service that run nothing; those that stand by last."""
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S)
    rows = {tuple(line.split()) for line in ran.stdout.splitlines()}
    return tuple(row[0] for state in ("idle", "reserved") for row in sorted(rows) if row[1:] == (state,))


async def hold_for_test(connections: Remote, head: Machine, node: str) -> None:
    """No job starts there for the next minutes, or until `end_hold`."""
    what = (f"ReservationName={_test(node)}", f"Nodes={node}", "StartTime=now", f"Duration={_TEST_MINUTES}")
    await _scontrol(connections, head, "create", "reservation", *what, "Users=root", "Flags=IGNORE_JOBS,OVERLAP")


async def end_hold(connections: Remote, head: Machine, node: str) -> None:
    await _scontrol(connections, head, "delete", f"ReservationName={_test(node)}", check=False)


def _test(node: str) -> str:
    return f"headway_test_{node}"


async def start_now(connections: Remote, head: Machine, job_id: int) -> None:
    """A requeued job waits for its begin time; this drops it, so that the next scheduling cycle may start the job. One that
    runs already, or tasks of it, needs no more.

    Not within a second of the job's end: slurmd counts in whole seconds, and takes a job that begins in the second in which
    it was ended on the same node for the one that was ended ("already killed"), which Slurm then counts as failed."""
    with contextlib.suppress(CommandFailed):
        alone = await _alone(connections, head, job_id)
        await _scontrol(connections, head, "update", f"JobId={alone}", "StartTime=now")


async def requeue(connections: Remote, head: Machine, job_id: int) -> None:
    """A heterogeneous job as a whole. One that somebody has requeued already is left as it is."""
    own = await _own_name(connections, head, job_id)
    whole, of, _ = own.partition("+")
    name = whole if of else own if _TASK.fullmatch(own) else str(job_id)
    try:
        await _scontrol(connections, head, "requeue", name)
    except CommandFailed as error:
        if _WAITS not in error.stderr.lower():
            raise


def forbids_requeue(error: CommandFailed) -> bool:
    """Whether the job itself does, rather than this moment."""
    return any(words in error.stderr.lower() for words in _NEVER)


def forgot(error: CommandFailed) -> bool:
    """Whether the controller has forgotten the job."""
    return _FORGOTTEN in error.stderr.lower()


async def cancel(connections: Remote, head: Machine, job_id: int) -> None:
    await connections.remote(head, ["scancel", await _alone(connections, head, job_id)], timeout_s=_TIMEOUT_S)


async def _alone(connections: Remote, head: Machine, job_id: int) -> str:
    """What names this job and no other: Slurm gives an array's own number to one of its tasks too, the last, and takes that
    number for all of them wherever it is told to do something."""
    own = await _own_name(connections, head, job_id)
    return own if _TASK.fullmatch(own) else str(job_id)


async def _own_name(connections: Remote, head: Machine, job_id: int) -> str:
    """As squeue shows it: a task or a part by that of the whole. "" for one that the controller has forgotten."""
    argv = ["squeue", "--all", "--noheader", f"--jobs={job_id}", "--states=all", "--format=%A %i"]
    ran = await connections.remote(head, argv, timeout_s=_TIMEOUT_S, check=False)
    if ran.code != 0 and _FORGOTTEN not in ran.stderr.lower():  # else the controller could not be asked
        raise CommandFailed(ran.argv, ran.code, ran.stderr, where=head.name)
    return dict(line.split() for line in ran.stdout.splitlines()).get(str(job_id), "")


async def _shown(connections: Remote, head: Machine, job_id: int) -> str:
    """What the controller says of this job alone, "" for one that it has forgotten: asked for an array's number it shows
    every task."""
    ran = await _scontrol(connections, head, "--oneliner", "show", "job", str(job_id), check=False)
    found = re.search(rf"^JobId={job_id}\b.*$", ran.stdout, re.MULTILINE)
    return found[0] if ran.code == 0 and found else ""


async def notify(connections: Remote, head: Machine, job_id: int, words: str) -> None:
    """Into the job's own output, where its owner looks. A job that can't be told anything any more isn't."""
    with contextlib.suppress(CommandFailed):
        await _scontrol(connections, head, "notify", await _alone(connections, head, job_id), _line(words))


async def job_words(connections: Remote, head: Machine, job_id: int) -> tuple[str, str]:
    """(its batch script, the command it was submitted with); "" for what isn't known."""
    script = await _scontrol(connections, head, "write", "batch_script", str(job_id), "-", check=False)
    argv = ["sacct", "-X", "-n", "-P", "-o", "SubmitLine", "-j", str(job_id)]
    line = await connections.remote(head, argv, timeout_s=_TIMEOUT_S, check=False)
    return (script.stdout if script.code == 0 else "", line.stdout.partition("\n")[0] if line.code == 0 else "")


async def signal(connections: Remote, head: Machine, job_id: int, name: str, *, batch_only: bool) -> None:
    """To the job's steps, or to its batch script alone."""
    alone = await _alone(connections, head, job_id)
    argv = ["scancel", f"--signal={name}", *(["--batch"] if batch_only else []), alone]
    await connections.remote(head, argv, timeout_s=_TIMEOUT_S)


async def ping(connections: Remote, head: Machine) -> bool:
    """Whether slurmctld answers on the head itself."""
    ran = await _scontrol(connections, head, "ping", check=False)
    return ran.code == 0 and " is UP" in ran.stdout


async def refill(connections: Remote, head: Machine, argv: Sequence[str]) -> None:
    """Carries out one of `changes.slurm_accounts.refills_due`."""
    await connections.remote(head, argv, timeout_s=_TIMEOUT_S)


async def hold_back(connections: Remote, head: Machine, team: str, *, on: bool) -> None:
    """None of the team's jobs starts while this is on. It is said by a limit of its QOS that no cluster file sets, so that an
    apply leaves it as it is. Where there is no such QOS (the team left the file) nothing is held back."""
    ran = await connections.remote(head, holding_back(team, on=on), timeout_s=_TIMEOUT_S, check=False)
    if ran.code != 0 and (on or "nothing modified" not in ran.stdout.lower()):
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)


def holding_back(team: str, *, on: bool) -> list[str]:
    """The argv of `hold_back`."""
    return ["sacctmgr", "-i", "modify", "qos", "where", f"name={team}", "set", f"MaxJobsPerUser={0 if on else -1}"]


def _line(reason: str) -> str:
    """Slurm keeps a reason on one line."""
    return " ".join(reason.split()) or "no reason given"


async def _scontrol(connections: Remote, head: Machine, *words: str, check: bool = True) -> Ran:
    return await connections.remote(head, ["scontrol", *words], timeout_s=_TIMEOUT_S, check=check)
