"""Slurm and a provider of a small cluster, for tests of code that talks to both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headway.catalog.providers import LOCAL
from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import expand
from headway.errors import CommandFailed, Refused
from headway.transport.process import CommandResult

SHOWN = {"idle": "IDLE", "down": "DOWN", "down*": "DOWN+NOT_RESPONDING"}  # sinfo's word -> that of scontrol
UNKNOWN_JOB = "slurm_load_jobs error: Invalid job id specified"


class FakeSlurm:
    """Plays Connections to a head: nodes with reasons, and jobs on nodes. Orders change them as they do in Slurm.

    `did` lists the commands that change something, in order. An unexpected command fails the test."""

    def __init__(self, nodes: Iterable[str], **jobs: Iterable[int]) -> None:
        """`jobs`: node -> its jobs; a name is written lab_1_2 for lab-1-2."""
        self.states = dict.fromkeys(nodes, "idle")  # as sinfo writes them, of nodes without a reason
        self.reasons: dict[str, str] = {}  # of nodes that are out of service
        self.jobs = {name.replace("_", "-"): set(numbers) for name, numbers in jobs.items()}
        self.job_states: dict[int, str] = {}  # of jobs that do not run, or are on no node
        self.errors: dict[str, list[str]] = {}  # verb -> errors of the next orders with it; "" where one succeeds
        self.scripts: dict[int, str] = {}
        self.submit_line = "sbatch a.sh"  # in accounting; "" if it does not know it
        self.keeps_jobs: set[int] = set()  # jobs that stay on their nodes whatever is ordered
        self.did: list[str] = []

    async def drop(self, _: str) -> None: ...

    async def remote(self, machine: Machine, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        words = list(argv)
        out = await self.query(words)
        err = ""
        if out is None:
            self.record(words)
            verb = words[1] if words[0] == "scontrol" else words[0]
            errors = self.errors.get(verb)
            err, out = errors.pop(0) if errors else "", ""
            if not err:
                self.carry_out(words)
        elif words[0] == "squeue" and words[-1] == "--format=%A %i" and not out:
            err = UNKNOWN_JOB
        if check and err:
            raise CommandFailed(argv, 1, err, where=machine.name)
        return CommandResult(tuple(argv), int(bool(err)), out, err, 0.0)

    async def query(self, argv: list[str]) -> str | None:
        """Returns what Slurm prints; None if the command is an order. Fails on an unexpected command."""
        match argv:
            case ["sinfo", *_, "--Node", "--format=%N|%T|%E"]:
                return "".join(
                    f"{name}|{self.state_of(name)}|{self.reasons.get(name, 'none')}\n" for name in self.states
                )
            case ["sinfo", *_, option, "--format=%T"]:
                return self.state_of(option.removeprefix("--nodes=")) + "\n"
            case ["scontrol", "--oneliner", "show", "node", name]:
                why = f" Reason={self.reasons[name]} [root@2026-01-01T00:00:00]" if name in self.reasons else ""
                drain = "+DRAIN" if why and self.states[name] == "idle" else ""
                return f"NodeName={name} State={SHOWN[self.states[name]]}{drain}{why}\n"
            case ["squeue", "--all", "--noheader", _, "--format=%A %N"]:
                there = ((job, node) for node, jobs in self.jobs.items() for job in jobs)
                return "".join(f"{job} {node}\n" for job, node in there if self.job_states.get(job) != "PENDING")
            case ["squeue", "--all", "--noheader", option, "--states=all", "--format=%A %i"]:
                job = option.removeprefix("--jobs=")
                return f"{job} {job}\n" if self.state_of_job(int(job)) else ""
            case ["scontrol", *_, "show", "job", job]:
                return f"JobId={job} JobState={state} Reason=None\n" if (state := self.state_of_job(int(job))) else ""
            case ["scontrol", "write", "batch_script", job, "-"]:
                return self.scripts.get(int(job), "#!/bin/sh\n")
            case ["sacct", *_, "-o", "SubmitLine", "-j", _]:
                return f"{self.submit_line}\n" if self.submit_line else ""
            case ["scontrol", "update" | "requeue" | "notify" | "create", *_] | ["scancel", *_]:
                return None
        raise AssertionError(f"unexpected command: {argv}")

    def state_of(self, node: str) -> str:
        """Returns the node's state as sinfo writes it."""
        drained = self.states[node] == "idle" and node in self.reasons
        return ("draining" if self.jobs.get(node) else "drained") if drained else self.states[node]

    def state_of_job(self, job: int) -> str:
        """Returns the job's state in Slurm's word; "" if Slurm does not know it."""
        running = any(job in jobs for jobs in self.jobs.values())
        return self.job_states.get(job, "RUNNING" if running else "")

    def record(self, argv: list[str]) -> None:
        """Notes an order in `did`."""
        self.did.append(" ".join(argv))

    def carry_out(self, argv: list[str]) -> None:
        """Changes nodes and jobs as the order says."""
        match argv:
            case ["scontrol", "update", *words]:
                self.update(dict(word.split("=", 1) for word in words))
            case ["scontrol", "requeue", job] | ["scancel", job] if job.isdigit():
                self.end(int(job))

    def update(self, given: dict[str, str]) -> None:
        """Sets or clears states and reasons of nodes."""
        for name in expand(given.get("NodeName", "")):
            if given["State"] in ("DRAIN", "DOWN"):
                self.reasons[name] = given["Reason"]
            else:
                self.reasons.pop(name, None)
            if given["State"] in ("DOWN", "RESUME"):
                self.states[name] = {"DOWN": "down", "RESUME": "idle"}[given["State"]]

    def end(self, job: int) -> None:
        """Takes the job off its nodes, as a requeue or its end does."""
        if job not in self.keeps_jobs:
            self.jobs = {node: jobs - {job} for node, jobs in self.jobs.items()}
            self.job_states[job] = "PENDING"


class FakeProvider:
    """Plays a provider: lists and deletes machines. `did` lists the deletions; it may be the list of a FakeSlurm."""

    traits = LOCAL

    def __init__(self, machines: Iterable[Machine], did: list[str] | None = None) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.did = [] if did is None else did
        self.stuck: set[str] = set()  # machines that can't be deleted

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def delete(self, machine: Machine) -> None:
        self.did.append(f"delete {machine.name}")
        if machine.name in self.stuck:
            raise Refused("device busy")
        self.machines.pop(machine.name, None)
