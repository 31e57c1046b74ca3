"""A real cluster for tests, used as people use it: the headway command, its own server and its own state folder."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import Unreachable
from headway.paths import instance_label
from headway.schemas.submission.exec_commands import ExecIn, ExecOut
from headway.schemas.submission.submit_request import SubmitIn
from headway.sdk.client import Client, connect

T = TypeVar("T")

PATIENCE_S = 300.0  # generous: tests assert order and outcome, not speed


@dataclass
class Done:
    """The exit code and output of a finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def frozen_mirrors_will_do(lab: Lab) -> None:
    """Lets apt accept outdated package lists, which stay signed: lists of a Debian release in testing are valid for
    a week, and the mirror of a test machine may stand still for longer."""
    file = lab.state / "apt.conf"
    file.write_text('Acquire::Check-Valid-Until "false";\n')
    lab.env["APT_CONFIG"] = str(file)


@dataclass
class Lab:
    """A cluster and its server. `head(...)` runs a command on its login node, `cli(...)` runs the headway command
    here."""

    state: Path
    name: str = "lab"
    image: str = "debian13"
    env: dict[str, str] = field(default_factory=dict)
    _client: Client | None = None

    def __post_init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
        home = self.state / "home"
        home.mkdir(parents=True, exist_ok=True)
        self.env = {**kept, "HEADWAY_STATE": str(self.state), "HOME": str(home), "NO_COLOR": "1", "USER": "root"}
        self.env["HEADWAY_PORT"] = "0"

    def cli(self, *args: str, check: bool = True, stdin: str = "", timeout_s: float = 600, **env: str) -> Done:
        """Runs `headway ARGS` as a new user types it; stdin is never a terminal."""
        ran = subprocess.run(
            [sys.executable, "-m", "headway", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**self.env, **env},
            check=False,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        if check:
            assert ran.returncode == 0, (
                f"headway {' '.join(args)} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
            )
        return Done(ran.returncode, ran.stdout, ran.stderr)

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = connect(self.state)
        return self._client

    def forget_client(self) -> None:
        """Drops the API client after the server was started again at another address."""
        if self._client is not None:
            self._client.close()
        self._client = None

    @contextmanager
    def applied(self, spec: str) -> Iterator[None]:
        """Applies the cluster of this file for the duration of the context, and removes it afterwards."""
        file = self.state / f"{self.name}.yaml"
        file.write_text(spec)
        try:
            self.cli("apply", str(file), "--yes", timeout_s=600)
            yield
        finally:
            self.down()

    def head(self, *argv: str, user: str = "root", check: bool = True, stdin: str = "") -> Done:
        """Runs one command on the login node, as root or as a user of the cluster."""
        request = ExecIn(argv=list(argv), user=user, stdin_b64=base64.b64encode(stdin.encode()).decode())
        told = self._asked(request)
        done = Done(
            told.code,
            base64.b64decode(told.stdout_b64).decode(errors="replace"),
            base64.b64decode(told.stderr_b64).decode(errors="replace"),
        )
        if check:
            assert done.code == 0, f"{argv} as {user} ended with {done.code}: {done.out}{done.err}"
        return done

    def _asked(self, request: ExecIn) -> ExecOut:
        """Repeats a request that was not carried out, because the head of an overloaded host may not answer SSH for
        a minute."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.client.commands.exec(self.name, request)
            except Unreachable as error:
                if "does not answer SSH" not in error.message or time.monotonic() > ends:
                    raise
                time.sleep(1)

    def sbatch(self, user: str, *flags: str, wrap: str = "", script: str = "") -> int:
        """Runs sbatch on the login node, as plain Slurm users do, and returns the job id."""
        argv = ["sbatch", "--parsable", *flags]
        if wrap:
            argv.append(f"--wrap={wrap}")
        return int(self.head(*argv, user=user, stdin=script).out.strip().split(";")[0])

    def submit(self, script: str, *args: str, user: str = "", chdir: str = "") -> int:
        """Submits a script through the API as `headway submit` does, and returns the job id."""
        return self.client.jobs.sbatch(
            self.name, SubmitIn(args=list(args), script=script, user=user, chdir=chdir)
        ).job_id

    def field(self, job: int | str, name: str) -> str:
        """Returns one field of scontrol's output for a job ("JobState", "NodeList", "Reason", "Restarts", ...), or
        ""."""
        text = self.head("scontrol", "-o", "show", "job", str(job)).out
        fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return fields.get(name, "")

    def state_of(self, job: int | str) -> str:
        """Returns the job's state, from accounting if the controller no longer knows the job."""
        told = self.head("squeue", "-h", "-o", "%T", "-j", str(job), check=False).out.split()
        if told:
            return told[0]
        lines = self.head("sacct", "-X", "-n", "-P", "-o", "State", "-j", str(job)).out.splitlines()
        # A job that lost a node and went on has a row for each of its sizes.
        told = [line for line in lines if line and line != "RESIZING"]
        return told[0].split(" ")[0] if told else "UNKNOWN"

    def wait_job(self, job: int | str, *states: str, patience_s: float = PATIENCE_S) -> str:
        """Waits until the job is in one of these states (in any ended state if none is named), and returns the
        state."""
        wanted = states or ENDED

        def there() -> str:
            state = self.state_of(job)
            if state in wanted:
                return state
            assert state not in ENDED, f"job {job} ended {state}, not {wanted}: {self.why(job)}"
            return ""

        try:
            return self.wait(there, f"job {job} to be {'/'.join(wanted)}", patience_s=patience_s)
        except AssertionError as error:
            nodes = self.head("sinfo", "-N", "-o", "%N %T %E", check=False).out
            raise AssertionError(f"{error}\n{self.why(job)}\n{nodes}") from error

    def wait_array(self, job: int) -> None:
        """Waits until no task of the array is in the queue; a task that slurmctld has forgotten is not."""

        def gone() -> bool:
            output = self.head("squeue", "-h", "-j", str(job), check=False)
            return not output.out.strip() and (output.code == 0 or "Invalid job id" in output.err)

        self.wait(gone, f"the array {job} to end")

    def why(self, job: int | str) -> str:
        """Returns scontrol's output for a job, for messages of failed tests."""
        return self.head("scontrol", "show", "job", str(job), check=False).out

    def wait(
        self,
        ask: Callable[[], T],
        what: str,
        patience_s: float = PATIENCE_S,
        *,
        seen: Callable[[Lab], str] | None = None,
    ) -> T:
        """Calls `ask` until its answer is true, and returns it. The deadline only limits a failing test, which adds what
        `seen` returns to its message."""
        ends = time.monotonic() + patience_s
        while not (answer := ask()):
            assert time.monotonic() < ends, f"gave up waiting for {what}" + (f": {seen(self)}" if seen else "")
            time.sleep(0.1)
        return answer

    def output(self, path: str, user: str = "root") -> str:
        """Returns the contents of a file on the head."""
        return self.head("cat", path, user=user).out

    def podman(self, *args: str) -> str:
        """Runs podman on this host, for faults such as a power cut, and returns its output."""
        ran = subprocess.run(["podman", *args], capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, f"podman {' '.join(args)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def container(self, machine: str) -> str:
        """Returns the name of the container that is this machine of the lab."""
        names = self.containers(machine)
        assert len(names) == 1, f"{machine}: {names}"
        return names[0]

    def containers(self, machine: str) -> list[str]:
        """Returns the names of the machine's containers: one, or [] if there is none."""
        wanted = {"instance": instance_label(self.state), "cluster": self.name, "machine": machine}
        filters = (f"--filter=label=headway.{key}={value}" for key, value in wanted.items())
        return [str(row["Names"][0]) for row in json.loads(self.podman("ps", "-a", "--format", "json", *filters))]

    def story(self) -> str:
        """Returns the history of this cluster for the report of a failed test."""
        lines = []
        for incident in self.client.incidents.list(self.name):
            steps = self.client.incidents.get(self.name, incident.number).steps
            lines += [
                f"incident {incident.number} {incident.node}",
                *(f"  {s.at:.2f} {s.state}: {s.text}" for s in steps),
            ]
        lines += [
            f"{op.kind} {op.state} {op.started_at}..{op.finished_at}" for op in self.client.operations.list(self.name)
        ]
        return "\n".join([*lines, self.cli("server", "logs", "-n", "60", check=False).out])

    def down(self) -> None:
        self.cli("down", self.name, "--yes", "--delete-data", check=False)
        self.cli("server", "stop", check=False)


ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
)
