"""Stands in for one node, its machine and its controller as far as incidents use them: any other request fails the
test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headway.catalog.providers import LOCAL
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident, IncidentState, Symptom
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, Unreachable
from headway.health.incidents.engine import IncidentEngine
from headway.health.policy.repair_time_limits import JOBS_START_S
from headway.providers.base import ReclaimNotice
from headway.render.slurm.hooks.prolog_epilog import HOLD
from headway.render.system.agent_config import UNFIT
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock, cluster, machine

LAB = cluster()
NODE = "lab-1-2"
FOR_GOOD = 10**9


class World:
    """Stands in for the provider and for Connections. `order` lists the actions on the machine and the commands to
    Slurm, in order."""

    traits = replace(LOCAL, creates_machines=False)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.machine: Machine | None = replace(machine(NODE), started_at=1.0)
        self.state, self.reason = "IDLE", ""
        self.jobs: dict[int, str] = {}
        self.tasks: dict[int, str] = {}  # tasks of an array: job -> its name, "7_2"
        self.scripts: dict[int, str] = {}
        self.no_kill: set[int] = set()  # jobs that only lose a node that is down
        self.fixed: set[int] = set()  # jobs submitted with --no-requeue
        self.stuck: set[int] = set()  # jobs for which the controller accepts no command now
        self.refused: dict[int, str] = {}  # jobs that the controller refuses to requeue, with its message
        self.elsewhere: set[int] = set()  # jobs that have run on other nodes since
        self.leaves = True  # a requeued job leaves the node at once
        self.gpus = 8
        self.gpus_after_reset: int | None = 8  # None: the reset itself fails
        self.answers = False  # whether it answers SSH when checked for life
        self.up_at = 0.0  # when its SSH server answers after a start
        self.goes_at = 0.0  # when it stops to answer after a restart command, which takes time
        self.restarts_s = 600.0
        self.started = 1.0  # start of its first process, unknown to a provider that cannot switch machines on
        self.order: list[str] = []
        self.requeued: list[int] = []
        self.released = 0
        # ages of heartbeats as the head reports them after the check
        self.ages = dict.fromkeys(LAB.slot_names, 0.4) | {NODE: 16.0}
        self.last_breath: dict[int, str] = {}  # states with which jobs end while their machine is fenced
        self.registers = True  # whether slurmd registers with Slurm after a start
        self.sound = True  # whether the agent's own tests pass
        self.tested: list[str] = []
        self.batch_hosts: dict[int, str] = {}  # jobs whose script runs on another node -> that node
        self.ended: dict[int, int] = {}  # jobs that failed on the node -> when
        self.accounted: dict[int, str] = {}  # states of jobs in accounting
        self.codes: dict[int, int] = {}  # exit codes of jobs that are completing
        self.idle: tuple[str, ...] = ()  # other nodes that run nothing
        self.slow_with: set[str] = set()  # nodes with which an all-reduce is too slow
        self.skips_with: set[str] = set()  # nodes that lack what an all-reduce needs
        self.gb_s: float | None = None  # the figure of an all-reduce
        self.rdma: dict[str, dict[str, Any]] | None = (
            None  # node -> what its test of RDMA ports answers; None: no ports
        )
        self.due: dict[str, float] = {}  # machines that the provider reclaims -> when
        self.others: dict[str, float] = {}  # machines that were created later -> when
        self.missing: set[str] = set()  # other slots without a machine
        self.reboot_fails: Callable[[], tuple[int, str]] | None = None
        self.away = 0  # number of mount attempts that fail, or FOR_GOOD
        self.unfit: list[str] = []  # what its agent reports at the next checks
        self.df: list[str] = []  # the lines of df about the head's disks at the next looks
        self.flaky_nodes: str = ""  # nodes in the reservation of flaky nodes

    # --- stands in for the provider

    async def list(self, _: str) -> tuple[Machine, ...]:
        others = [
            replace(machine(name), started_at=self.others.get(name, 1.0))
            for name in LAB.slot_names
            if name != NODE and name not in self.missing
        ]
        return (machine("lab-head"), *others, *([self.machine] if self.machine else []))

    async def notices(self, _: str) -> tuple[ReclaimNotice, ...]:
        return tuple(ReclaimNotice(name, at) for name, at in self.due.items())

    async def fence(self, _: Machine) -> None:
        await self._turn("fence", MachineState.STOPPED)
        self.jobs |= self.last_breath

    async def stop(self, _: Machine) -> None:
        await self._turn("stop", MachineState.STOPPED)

    async def start(self, _: Machine) -> None:
        await self._turn("start", MachineState.RUNNING)
        if self.registers:
            self.state = self.state.rstrip("*")

    async def delete(self, _: Machine) -> None:
        self.order.append("delete")
        self.machine = None
        self.due.pop(NODE, None)

    async def drop(self, _: str) -> None:
        """Does nothing; part of the interface of Connections."""

    async def _turn(self, word: str, state: MachineState) -> None:
        assert self.machine is not None
        self.order.append(word)
        self.machine = replace(self.machine, state=state, started_at=self.clock())

    # --- stands in for the connections to machines

    async def remote(self, at: Machine, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        code, out = self._answer(at.name, list(argv))
        if check and code:
            raise CommandFailed(argv, code, out or "refused", where=at.name)
        return CommandResult(tuple(argv), code, out, "", 0.0)

    def _answer(self, at: str, words: Sequence[str]) -> tuple[int, str]:
        line = " ".join(words)
        if words[:3] == ["python3", "-I", "-S"] and "beats" in words[-1]:
            return 0, json.dumps(self.ages)
        if words[4:6] == ["test", "allreduce"]:
            return self._allreduce(at, words)
        if words[4:6] == ["test", "rdma"]:
            return self._rdma(at)
        if words[0] == "sinfo" and "%N|%T|%E" in line:
            word = "drained" if "DRAIN" in self.state else "down" if "DOWN" in self.state else "idle"
            return 0, "".join(
                f"{name}|{word if name == NODE else 'idle'}|{self.reason if name == NODE else 'none'}\n"
                for name in LAB.slot_names
            )
        if words[0] == "sinfo":
            return 0, "".join(f"{name} idle\n" for name in (NODE, *self.idle))
        if "headway_test" in line:
            self.order.append(" ".join((words[1], line.partition("headway_test_")[2].split()[0])))
            return 0, ""
        if words[:3] == ["python3", "-I", "-S"] and at != NODE:  # the head asks for the node's banner
            return 1, ""
        if at == NODE:
            return self._node(words)
        if "show node" in line:
            reason = f" Reason={self.reason} [root@2026-01-01T00:00:00]" if self.reason else ""
            return 0, f"NodeName={NODE} Arch=x86_64 State={self.state} ThreadsPerCore=1{reason}\n"
        if "State=UNDRAIN" in line:
            return 0, ""
        if "State=POWER_DOWN_FORCE" in line:
            self.order.append("sleeps")
            self.state, self.reason = "IDLE+POWERING_DOWN", ""
            return 0, ""
        for state in ("DRAIN", "DOWN", "RESUME"):
            if f"State={state}" in line:
                return self._update(state, line.partition("Reason=")[2])
        if "reservation" in words or words[:2] == ["scontrol", "delete"]:
            return self._reservation(words)
        if "squeue" in words and "--states=FAILED" in words:
            return 0, "".join(f"{number} {at}\n" for number, at in self.ended.items())
        if "squeue" in words and "--format=%A %S %B %N" in words:
            asked_for = {int(number) for number in line.partition("--jobs=")[2].split()[0].split(",")}
            return 0, "".join(
                f"{n} 1 {self.batch_hosts.get(n, NODE)} lab-1-[1,3]\n"
                if n in self.no_kill
                else f"{n} 1001 lab-1-1 lab-1-1\n"
                for n in sorted(asked_for)
            )
        if words[0] == "squeue" and "--format=%A %i" in words:
            return 0, "".join(f"{n} {self.tasks.get(n, n)}\n" for n in self.jobs)
        if words[0] == "squeue":
            asked = line.partition("--states=")[2].split()[0].split(",")
            there = (n for n, state in self.jobs.items() if state in asked and n not in self.elsewhere)
            return 0, "".join(f"{n} {self.batch_hosts.get(n, NODE)}\n" for n in there)
        if "show job" in line:
            number = int(words[-1])
            state, code = self.jobs.get(number, "COMPLETED"), self.codes.get(number, 0)
            return 0, f"JobId={number} JobState={state} Reason=None Restarts=0 ExitCode={code}:0\n"
        if words[0] in {"touch", "rm"} and words[-1].startswith(HOLD):
            jobs = " ".join(word.rpartition("/")[2] for word in words if word.startswith(HOLD))
            self.order.append(f"{'hold' if words[0] == 'touch' else 'let go'} {jobs} on {at}")
            return 0, ""
        if words[:3] == ["scontrol", "write", "batch_script"]:
            return 0, self.scripts.get(int(words[3]), "#!/bin/sh\n")
        if words[0] == "df":
            self.order.append("df")
            return 0, f"File Type 1M-blocks Inodes IFree\n{self.df.pop(0)}"
        if words[0] == "sacct" and "JobIDRaw,State" in words:
            return 0, "".join(f"{n}|{self.accounted.get(int(n), 'RUNNING')}\n" for n in words[-1].split(","))
        if words[0] == "sacct":
            return 0, f"sbatch {words[-1]}.sh\n"
        if words[0] == "scancel":
            self.order.append(f"signal {words[-1]} {words[1]}")
            return 0, ""
        if words[:2] == ["scontrol", "requeue"]:
            names = {name: number for number, name in self.tasks.items()}
            return self._requeue(names[words[2]] if words[2] in names else int(words[2]))
        raise AssertionError(f"unexpected on {at}: {line}")

    def _node(self, words: Sequence[str]) -> tuple[int, str]:
        if list(words) == ["true"]:
            self.order.append("ask")
            if not self.answers:
                raise Unreachable("no answer")
            return 0, ""
        if self.machine is None or self.machine.state is not MachineState.RUNNING:
            raise Unreachable(f"{NODE} does not answer")
        if self.goes_at <= self.clock() < self.up_at:
            raise Unreachable(f"{NODE} does not answer")
        if list(words) == ["systemctl", "reboot"]:
            self.order.append("reboot")
            if self.reboot_fails is not None:
                return self.reboot_fails()
            self.goes_at, self.up_at = self.clock() + 60, self.clock() + self.restarts_s
            return 0, ""
        if list(words) == ["cat", "/proc/uptime", "/proc/1/stat"]:
            if self.registers:
                self.state = self.state.rstrip("*")
            started = self.up_at - 30 if self.up_at > self.goes_at and self.clock() >= self.up_at else self.started
            return 0, f"{self.clock() - started + 1000:.2f} 9.9\n1 (systemd) S {'0 ' * 18}100000 0 0\n"
        if words[0] == "rm" and words[-1].endswith("xid"):
            self.released += 1
        if "--gpu-reset" in words:
            self.order.append(f"reset {words[-1]}")
            if self.gpus_after_reset is None:
                return 1, "GPU is in use"
            self.gpus = self.gpus_after_reset
            return 0, ""
        if "test" in words:
            self.tested.append(words[5])
            rows = [{"test": "mounts", "ok": self.sound, "reason": "" if self.sound else "/scratch is gone"}]
            return int(not self.sound), "".join(json.dumps(row) + "\n" for row in rows)
        if list(words) == ["cat", UNFIT]:
            self.order.append("look for room")
            said = self.unfit.pop(0) if self.unfit else ""
            return int(not said), said
        if words[:2] == ["systemctl", "start"]:
            assert words[2] == "--no-block", "a mount whose server is away lasts half a minute"
            self.order.append(f"mount {words[3]}")
            return 0, ""
        if words[:3] == ["python3", "-I", "-S"] and "mounted_s" in words[-1]:
            self.away -= 1
            rows = [
                {"path": path, **({"error": "is not mounted"} if self.away >= 0 else {"size": 1, "free": 1})}
                for path in json.loads(words[-1])["paths"]
            ]
            return 0, "".join(json.dumps(row) + "\n" for row in rows)
        listed = "".join(f"GPU {n}: x\n" for n in range(self.gpus))
        known = {"rm": "", "touch": "", "systemctl": "", "nvidia-smi": listed}
        return 0, known[words[0]]

    def _update(self, state: str, reason: str) -> tuple[int, str]:
        self.order.append(state.lower())
        if state == "RESUME":
            self.state, self.reason = "IDLE", ""
        else:
            self.state, self.reason = {"DRAIN": "IDLE+DRAIN", "DOWN": "DOWN*"}[state], reason
        if state == "DOWN":
            runs = {n for n, state in self.jobs.items() if state == "RUNNING"} - self.no_kill
            self.jobs |= {n: "PENDING" if n not in self.fixed else "NODE_FAIL" for n in runs}
        return 0, ""

    def _allreduce(self, at: str, words: Sequence[str]) -> tuple[int, str]:
        sound = json.dumps({"test": "allreduce", "ok": True, "figure": self.gb_s}) + "\n"
        if at == NODE:
            return 0, sound
        self.order.append(f"all-reduce with {at}")
        if at in self.skips_with:
            row = {"test": "allreduce", "ok": True, "skipped": True, "reason": "torch is not installed"}
            return 0, json.dumps(row) + "\n"
        if self.gb_s is not None:
            return 0, sound
        reason = "less than the plan expects" if at in self.slow_with else ""
        return int(bool(reason)), json.dumps({"test": "allreduce", "ok": not reason, "reason": reason}) + "\n"

    def _rdma(self, at: str) -> tuple[int, str]:
        if self.rdma is None:
            return 0, ""  # a node without RDMA ports prints nothing
        row = {"test": "rdma", "ok": True, "figure": 390.0} | self.rdma.get(at, {})
        return int(not row["ok"]), json.dumps(row) + "\n"

    def _reservation(self, words: Sequence[str]) -> tuple[int, str]:
        assert "headway_flaky" in words[-1] or "ReservationName=headway_flaky" in words, words
        if words[1] == "--oneliner":
            return (
                (0, f"ReservationName=headway_flaky Nodes={self.flaky_nodes}\n")
                if self.flaky_nodes
                else (1, "not found")
            )
        self.flaky_nodes = next((word.partition("=")[2] for word in words if word.startswith("Nodes=")), "")
        self.order.append(f"flaky: {self.flaky_nodes}")
        return 0, ""

    def _requeue(self, number: int) -> tuple[int, str]:
        if number in self.fixed:
            return 1, "Requested operation is presently disabled"
        if number in self.refused:
            return 1, self.refused[number]
        if number in self.stuck:
            return 1, "Unable to contact slurm controller (connect failure)"
        self.requeued.append(number)
        self.jobs[number] = "PENDING" if self.leaves else "COMPLETING"
        return 0, ""


class Ward:
    """An incident engine on its own store, with the World that it acts on."""

    def __init__(self, world: World, responder: IncidentEngine) -> None:
        self.world, self.responder, self.clock = world, responder, world.clock

    @property
    def store(self) -> Any:
        return self.responder.cluster_context.store

    async def settle(self) -> Incident:
        """Runs the engine until no action is in progress, and returns the newest incident."""
        for _ in range(20):
            await self.responder.resume_open()
            if self.responder.tasks.running:
                await asyncio.wait(list(self.responder.tasks.running.values()))
            elif (await self.newest()).state is IncidentState.JOBS_MOVED:
                self.clock.now += JOBS_START_S  # gives its jobs the time to start elsewhere
            else:
                break
        return await self.newest()

    async def newest(self) -> Incident:
        """Returns the newest incident."""
        found: Incident = await self.store.incidents.get((await self.store.incidents.search("lab"))[0].number)
        return found

    async def bring_back(self, number: int, person: str, *, false_alarm: bool = False) -> Incident:
        """Returns the node of an incident to service as the server does, and returns the incident."""
        tests = await self.responder.return_node(number, person, false_alarm=false_alarm)
        if tests is not None:
            await asyncio.wait([tests])
        await self.responder.resume_open()
        found: Incident = await self.store.incidents.get(number)
        return found

    async def another_server(self) -> IncidentEngine:
        """Replaces the engine as a new server would; actions in progress of the old one are lost. Returns the new
        engine."""
        await self.responder.tasks.close()
        cluster_context = self.responder.cluster_context
        self.responder = IncidentEngine(self.responder.cluster, cluster_context, self.clock, self.responder.sleep)
        return self.responder


@asynccontextmanager
async def ward(folder: Path, of: Cluster = LAB) -> AsyncIterator[Ward]:
    """Yields an incident engine on its own store in `folder`, with a World and a clock that only the engine's waits
    move."""
    clock = Clock()
    world = World(clock)

    async def sleep(seconds: float) -> None:
        """Moves the clock, except while a volume is away for good: its waiters would otherwise let weeks pass
        meanwhile."""
        if world.away > FOR_GOOD // 2:
            await asyncio.sleep(0.001)
        else:
            clock.now += seconds
            await asyncio.sleep(0)

    store = await builders.store(folder, clock)
    responder = IncidentEngine(
        of, ClusterContext(cast(Any, world), store, cast(Any, world), Path("/nowhere")), clock, sleep
    )
    made = Ward(world, responder)
    try:
        yield made
    finally:
        await made.responder.tasks.close()
        await store.close()


def symptom(
    code: int = 79, *, at: float = 990.0, job: int | None = None, node: str = NODE, gpu: int | None = 3
) -> Symptom:
    """Returns a symptom of a GPU error on the node."""
    return Symptom(f"{node}-{code}-{at}", at, node, code, gpu, "", job)
