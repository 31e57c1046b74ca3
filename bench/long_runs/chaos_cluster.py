"""The cluster of bench/long_runs/chaos.py: its users' jobs, the faults that are made in it, and the technician's repairs."""

from __future__ import annotations

import base64
import contextlib
import random
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench_cluster import BenchCluster
from headway.errors import HeadwayError
from headway.schemas.submission.exec_commands import ExecIn
from headway.sdk.client import Client, connect
from long_runs.ledger_comparison import SACCT, Comparison, compare, ledger_runs, slurm_runs

T = TypeVar("T")

SPEC = """\
name: bench
plan: h100-8
nodes: 4
spares: 1
teams:
  lab: {users: [bench]}
"""
PATIENCE_S = 900.0  # the longest wait for nodes to be intact again, and for the queue to be empty at the end
QUIET_S = 45.0  # a fault that Headway has not acted on by then is healed anyway
MOMENT_S = 5.0  # how long a fault lasts on which Headway need not act
OWN_S = 4.0  # from a job's own error to the end of its run, at most
LEDGER_S = 180.0  # the longest wait until the ledger has read accounting
LATE_S = 10.0  # an incident so soon after the healing still belongs to the fault
STEP = """\
import json, os, sys, time
folder, steps, rank = sys.argv[1], int(sys.argv[2]), os.environ["SLURM_PROCID"]
os.makedirs(folder, exist_ok=True)
kept, restart = f"{folder}/at-{rank}", os.environ.get("SLURM_RESTART_COUNT", "0")
done = int(open(kept).read() or 0) if os.path.exists(kept) else 0
while done < steps:
    time.sleep(1)
    done += 1
    with open(f"{folder}/said-{rank}", "a") as file:
        file.write(f"{restart} {done} {time.time()}\\n")
    with open(kept + ".new", "w") as file:
        file.write(str(done))
    os.replace(kept + ".new", kept)
"""


@dataclass(frozen=True)
class Kind:
    """One kind of job: its sbatch options, and for how many seconds it works."""

    name: str
    flags: tuple[str, ...]
    steps: int
    requeue: bool = True
    tasks: int = 1  # number of array tasks


KINDS = (
    Kind("one GPU", ("--gpus=1",), 15),
    Kind("two nodes", ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4"), 30),
    Kind("four nodes", ("--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=2"), 20),
    Kind("array of 4", ("--array=1-4", "--gpus=1"), 10, tasks=4),
    Kind("no requeue", ("--gpus=1", "--no-requeue"), 15, requeue=False),
)


@dataclass(frozen=True)
class Row:
    """One run of a job, from accounting."""

    job: str
    state: str
    raw: str
    submit: int  # Unix seconds
    end: int  # 0: it has not ended
    nodes: str


@dataclass(frozen=True)
class Break:
    """One kind of fault: the arguments of `headway fault`, with {node}, {gpu} and {head}. `drains`: whether its node may be
    drained for it. `app`: the job that is hit has failed by its own fault."""

    words: tuple[str, ...]
    weight: int
    drains: bool = True
    app: bool = False
    on_node: bool = True

    @property
    def name(self) -> str:
        """Returns the fault's name without node and GPU."""
        words = (word.replace("{head}", "head") for word in self.words)
        return " ".join(word for word in words if "{" not in word and not word.startswith("--"))


BREAKS = (
    Break(("xid", "79", "{node}", "--gpu", "{gpu}"), 6),
    Break(("xid", "48", "{node}", "--gpu", "{gpu}"), 4),
    Break(("xid", "119", "{node}", "--gpu", "{gpu}"), 4),
    Break(("xid", "94", "{node}", "--gpu", "{gpu}"), 3, drains=False),
    # injecting it ends the processes on the GPU
    Break(("xid", "63", "{node}", "--gpu", "{gpu}"), 2, drains=False, app=True),
    Break(("xid", "31", "{node}", "--gpu", "{gpu}"), 4, app=True),  # the third in a day drains
    Break(("ecc", "{node}", "--gpu", "{gpu}"), 2),
    Break(("kill-node", "{node}"), 6),
    Break(("freeze-node", "{node}"), 4),
    Break(("cut-network", "{node}"), 4),
    Break(("mount-lost", "{node}"), 2),
    Break(("full-disk", "{node}"), 2),
    Break(("slow-disk", "{node}"), 2, drains=False),
    Break(("kill", "slurmd", "{node}"), 3),
    Break(("kill", "agent", "{node}"), 3, drains=False),
    Break(("kill", "slurmctld"), 2, drains=False, on_node=False),
    Break(("kill", "slurmdbd"), 2, drains=False, on_node=False),
    Break(("kill", "mariadb"), 2, drains=False, on_node=False),
    Break(("kill", "relay"), 2, drains=False, on_node=False),
    Break(("kill", "server"), 2, drains=False, on_node=False),
    Break(("kill-node", "{head}"), 2, drains=False, on_node=False),
)
# The OOM killer ends a daemon as "kill" does, by SIGKILL. A jump of the clock is not among the faults: containers have
# the host's clock.
HEAD = "bench-head"
HEAD_OFF_S = 5.0


@dataclass
class Made:
    """A fault that was made, and from when to when it lasted, in Unix seconds. `made_at`: when `headway fault` had made it."""

    what: Break
    node: str
    gpu: int
    at: float
    made_at: float = float("inf")
    mended: float | None = None


def command(*argv: str, user: str = "bench") -> Callable[[Client], tuple[int, str]]:
    """Returns a call that runs a command on the head as the user: (exit code, its output)."""

    def run(api: Client) -> tuple[int, str]:
        told = api.commands.exec("bench", ExecIn(argv=list(argv), user=user), timeout_s=120)
        return told.code, base64.b64decode(told.stdout_b64).decode(errors="replace")

    return run


@dataclass
class Run:
    """The state of the bench: its jobs and faults."""

    at: BenchCluster
    chance: random.Random
    kinds: tuple[Break, ...] = BREAKS
    # by name, because a job's number may change when the controller loses it
    jobs: dict[str, Kind] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)
    own_fault: set[int] = field(default_factory=set)  # JobIDRaw of the jobs that were hit by an app error

    def ask(self, what: Callable[[Client], T]) -> T:
        """Repeats the call until the server answers: it is killed too in this bench. Uses the client, because starting
        the command for each question would need a whole CPU."""
        for _ in range(180):
            try:
                return self.once(what)
            except (HeadwayError, OSError) as error:
                said = str(error)
                time.sleep(1)
        sys.exit(f"bench: no answer: {said}")

    def once(self, what: Callable[[Client], T]) -> T:
        """Makes the call once. Raises HeadwayError or OSError."""
        # read each time, because a restarted server has another address
        with connect(self.at.state) as api:
            return what(api)

    def slurm(self, *argv: str) -> str:
        """Repeats the command until it succeeds, because Slurm's daemons are killed too."""
        ends = time.monotonic() + 180
        while True:
            code, said = self.ask(command(*argv))
            if code == 0:
                return said
            if time.monotonic() > ends:
                sys.exit(f"bench: {' '.join(argv)} ends with {code}\n{said}")
            time.sleep(1)

    def submit(self, kind: Kind) -> None:
        """Submits a job of this kind."""
        name = f"j{self.chance.randrange(10**9)}"
        task = "srun python3 -S ~/step.py /scratch/bench/$SLURM_JOB_NAME-${SLURM_ARRAY_TASK_ID:-0} " + str(kind.steps)
        # Tries again with the same name when the answer got lost: the queue shows whether the job was accepted.
        for tries in range(30):
            number = self.slurm("squeue", "-h", "-n", name, "-o", "%F") if tries else ""
            if not number:
                argv = (
                    "sbatch", "--parsable", f"--job-name={name}", "--mem=64", "--output=/scratch/bench/%x-%a.out",
                    "--open-mode=append", "--time=60", *kind.flags, f"--wrap={task}",
                )  # fmt: skip
                with contextlib.suppress(HeadwayError, OSError):
                    code, said = self.once(command(*argv))
                    number = said.strip() if code == 0 else ""
            if number:
                self.jobs[name] = kind
                return
            time.sleep(1)
        sys.exit("bench: no job can be submitted")

    def fill(self, most: int) -> None:
        """Submits jobs until `most` are in the queue."""
        queued = set(self.slurm("squeue", "-h", "-o", "%F").split())
        for _ in range(most - len(queued)):
            self.submit(self.chance.choice(KINDS))

    def nodes(self) -> list[str]:
        """Returns the nodes that accept jobs, those that run some first."""
        rows = [line.split(maxsplit=1) for line in self.slurm("sinfo", "-h", "-N", "-o", "%N %t").splitlines()]
        states = dict(rows)
        return sorted(
            (n for n, s in states.items() if s in ("alloc", "mix", "idle")), key=lambda n: states[n] == "idle"
        )

    @property
    def broken(self) -> dict[str, Made]:
        """Returns node -> its fault that is not healed."""
        return {one.node: one for one in self.made if one.node and one.mended is None}

    def holder(self, node: str, gpu: int) -> int | None:
        """Returns the job that has this GPU; None if it is free."""
        for line in self.slurm("squeue", "-h", "-w", node, "-t", "R", "-o", "%A").split():
            shown = self.slurm("scontrol", "--oneliner", "--details", "show", "job", line)
            for part in re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=\S*\(IDX:([\d,-]+)\)", shown):
                if node in expand(part[0]) and gpu in numbers(part[1]):
                    return int(line)
        return None

    def incidents(self) -> list[dict[str, Any]]:
        """Returns all incidents."""
        return [one.model_dump(mode="json") for one in self.ask(lambda api: api.incidents.list("bench"))]

    def whole(self) -> list[str]:
        """Returns the nodes that accept jobs and have no fault, those with jobs first."""
        return [node for node in self.nodes() if node not in self.broken]

    def break_one(self) -> None:
        """Makes one random fault on a random node."""
        ends = time.monotonic() + PATIENCE_S
        while len(free := self.whole()) < 2:
            if time.monotonic() > ends:
                sys.exit(f"bench: after {PATIENCE_S:.0f} s fewer than two nodes are whole")
            self.tend()
        one = self.chance.choices(self.kinds, [each.weight for each in self.kinds])[0]
        node = self.chance.choice(free[:-1]) if one.on_node else ""
        gpu = self.chance.randrange(8)
        held = self.holder(node, gpu) if one.app else None
        if held is not None:
            self.own_fault.add(held)
        words = [word.format(node=node, gpu=gpu, head=HEAD) for word in one.words]
        self.made.append(Made(one, node, gpu, time.time()))
        ran = self.at.tried("fault", "bench", *words, timeout_s=120)
        self.made[-1].made_at = time.time()
        if ran.returncode:
            sys.exit(f"bench: headway fault {' '.join(words)}: {ran.stdout}{ran.stderr}")
        print(f"{len(self.made):4d}  {ran.stdout.strip()}", flush=True)
        if words[-1] == "server":
            time.sleep(1)
            self.at.headway("server", "start")
        if words[-1] == HEAD:
            time.sleep(HEAD_OFF_S)
            self.at.headway("fault", "bench", *words, "--heal")

    def tend(self) -> int:
        """Plays the technician: heals machines that are out of service and returns them, and heals faults that Headway
        has handled or need not handle. Returns the number of open incidents."""
        found = self.incidents()
        open_ = [one for one in found if one["state"] not in ("returned", "false alarm")]
        for one in open_:
            if one["state"] != "out of service":
                continue
            node, number = one["node"], str(one["number"])
            self.mend(node)
            said = self.at.tried("incident", "return", number, "--cluster", "bench", timeout_s=300)
            if said.returncode == 0:
                print(f"      returned {node}: incident {number}", flush=True)
        busy = {one["node"] for one in open_}
        for node, made in self.broken.items():
            dealt = any(one["node"] == node and one["opened_at"] >= made.at for one in found)
            acts = made.what.drains and not made.what.app
            if node not in busy and (dealt or time.time() - made.at > (QUIET_S if acts else MOMENT_S)):
                self.mend(node)
        return len(open_)

    def mend(self, node: str) -> None:
        """Heals the node's fault."""
        made = self.broken.get(node)
        if made is not None:
            words = [word.format(node=node, gpu=made.gpu) for word in made.what.words]
            self.at.tried("fault", "bench", *words, "--heal", timeout_s=120)
            made.mended = time.time()

    def wrong_drains(self) -> list[str]:
        """Returns the incidents that drained a node which had no fault that justifies it."""
        return [
            f"{incident['node']}: {incident['what']} (incident {incident['number']})"
            for incident in self.incidents()
            if incident["drained"]
            and not incident["what"].startswith("Slurm had drained it")  # Slurm drained it before Headway saw it
            and not any(self._explains(made, incident) for made in self.made)
        ]

    @staticmethod
    def _explains(made: Made, incident: dict[str, Any]) -> bool:
        during_fault = made.at - 1 <= incident["opened_at"] <= (made.mended or time.time()) + LATE_S
        return made.node == incident["node"] and made.what.drains and during_fault

    def ended(self) -> dict[str, list[Row]]:
        """Returns name-task -> its runs in accounting, one for each restart, the last one last."""
        fields = "JobName,JobID,State,JobIDRaw,Submit,End,NodeList"
        argv = ("sacct", "-X", "-D", "-n", "-P", "-u", "bench", "-S", "now-1days", "-o", fields)
        rows: dict[str, list[Row]] = {}
        for line in self.slurm("env", "SLURM_TIME_FORMAT=%s", *argv).splitlines():
            name, job, state, raw, submit, end, nodes = line.split("|")
            task = job.partition("_")[2] or "0"
            row = Row(job, state, raw, int(submit), int(end) if end.isdigit() else 0, nodes)
            rows.setdefault(f"{name}-{task}", []).append(row)
        return {key: sorted(found, key=lambda row: row.submit) for key, found in rows.items()}

    def compare_ledger(self) -> Comparison:
        """Compares the ledger with Slurm's accounting, when the ledger has had time to read it."""
        ends = time.monotonic() + LEDGER_S
        while (found := self._compare_ledger()).unequal and time.monotonic() < ends:
            time.sleep(2)
        return found

    def _compare_ledger(self) -> Comparison:
        cuts = [made.at for made in self.made if made.what.words == ("kill-node", "{head}")]
        text = self.slurm("env", "SLURM_TIME_FORMAT=%s", *SACCT)
        return compare(slurm_runs(text), ledger_runs(self.at.state / "headway.db"), cuts)

    def left_out(self) -> list[str]:
        """Returns the nodes that are out of service although no incident is open: only a person would return them."""
        open_ = {one["node"] for one in self.incidents() if one["state"] not in ("returned", "false alarm")}
        rows = [line.split(maxsplit=2) for line in self.slurm("sinfo", "-h", "-N", "-o", "%N %T %E").splitlines()]
        out = {f"{node}: {reason}" for node, state, reason in rows if state.startswith(("drain", "down", "fail"))}
        return sorted(words for words in out if words.partition(":")[0] not in open_)

    def written_down(self) -> bool:
        """Returns whether accounting has the end of every run; it learns of it some seconds later."""
        return all(row.end for rows in self.ended().values() for row in rows)

    def by_itself(self, last: Row) -> bool:
        """Returns whether the job's own error ended this run: it had the GPU when the error was made, or it failed on
        that node at the moment of the error."""
        apps = [made for made in self.made if made.what.app and made.node in expand(last.nodes)]
        hit = any(made.at - 1 <= last.end <= made.made_at + OWN_S for made in apps)
        return int(last.raw) in self.own_fault or (last.state == "FAILED" and hit)


def expand(text: str) -> set[str]:
    """Returns the names in a hostlist: bench-1-[1-2,4]."""
    begin, bracket, rest = text.partition("[")
    return {f"{begin}{n}" for n in numbers(rest.rstrip("]"))} if bracket else {text}


def numbers(text: str) -> set[int]:
    """Returns the numbers in a list: "1-2,4" -> {1, 2, 4}."""
    pairs = (part.split("-") for part in text.split(","))
    return {n for first, *last in pairs for n in range(int(first), int(last[0] if last else first) + 1)}


def print_evidence(run: Run, jobs: list[str]) -> None:
    """Prints what accounting and the controller say about lost jobs, because the cluster is deleted after the bench."""
    if not jobs:
        return
    look = f"journalctl --no-pager -u slurmctld | grep -E 'JobId=({'|'.join(jobs)})([^0-9]|$)' | tail -n 60"
    fields = "JobID,State,ExitCode,Submit,Start,End,NodeList"
    for asked in (
        command("sh", "-c", look, user="root"),
        command("sacct", "-D", "-n", "-P", "-j", ",".join(jobs), "-o", fields),
    ):
        with contextlib.suppress(HeadwayError, OSError):
            print(run.once(asked)[1])
