"""Terminals on a real cluster: a shell inside a job with its GPUs and the login node's shell, each as its person."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from tests.cluster.lab import Lab

from headway.schemas.access.tokens import TokenIn
from headway.schemas.submission.stream_frames import frames

PATIENCE_S = 120


@dataclass
class Terminal:
    """An open terminal. `shown`: all its output that was read."""

    api: httpx.Client
    address: str
    output: Iterator[tuple[str, bytes]]
    shown: str = ""

    def type(self, line: str) -> None:
        self.api.post(f"{self.address}/input", content=f"{line}\r".encode()).raise_for_status()

    def resize(self, rows: int, columns: int) -> None:
        self.api.put(f"{self.address}/size", json={"rows": rows, "columns": columns}).raise_for_status()

    def wait_for(self, pattern: str) -> str:
        """Reads output until the pattern matches, and returns the match's first group."""
        while not (found := re.search(pattern, self.shown)):
            kind, data = next(self.output)
            assert kind in ("out", "err"), (kind, data, self.shown)
            self.shown += data.decode(errors="replace")
        return found[1]

    def end(self) -> tuple[str, bytes]:
        """Reads the output to its end, and returns the last frame."""
        return list(self.output)[-1]


def as_member(lab: Lab, person: str) -> httpx.Client:
    token = lab.client.tokens.create(TokenIn.model_validate({"person": person, "role": "member"})).token
    return httpx.Client(
        base_url=f"{lab.client.url}/api/v1/clusters/lab",
        headers={"authorization": f"Bearer {token}"},
        timeout=PATIENCE_S,
    )


@contextmanager
def terminal(lab: Lab, person: str, **request: object) -> Iterator[Terminal]:
    """Opens a terminal, waits for its prompt, and closes its connection at the end."""
    key = "0123456789abcdef" * 2
    with as_member(lab, person) as api, api.stream("POST", "/terminals", json={"input": key, **request}) as answer:
        assert answer.status_code == 200, answer.read()
        opened = Terminal(api, f"/terminals/{key}", frames(answer.iter_raw()))
        opened.wait_for(r"([$#]) ")
        yield opened


def test_terminal_in_a_job_has_its_gpus_and_its_user(lab: Lab) -> None:
    job = lab.sbatch("viola", "--gpus-per-node=2", "--nodes=2", wrap="srun sleep 600")
    lab.wait_job(job, "RUNNING")
    nodes = lab.client.jobs.get("lab", job).nodes
    with terminal(lab, "viola", job=str(job), node=nodes[1], rows=40, columns=150) as shell:
        shell.type(
            "echo user=$(id -un) host=$(hostname) gpus=$(nvidia-smi -L | grep -c GPU) job=$SLURM_JOB_ID; stty size"
        )
        assert shell.wait_for(r"user=(\w+) host") == "viola"
        assert shell.wait_for(r"host=([\w-]+) gpus") == nodes[1]
        assert shell.wait_for(r"gpus=(\d+) job") == "2"
        assert shell.wait_for(r"job=(\d+)\s") == str(job)
        assert shell.wait_for(r"(40 150)")
        shell.resize(30, 100)
        shell.type("sleep 0.2; stty size")
        assert shell.wait_for(r"(30 100)")
        shell.type("exit 4")
        assert shell.end() == ("code", b"4")
    with as_member(lab, "vito") as other:
        refused = other.post("/terminals", json={"input": "f" * 32, "job": str(job)})
        assert refused.status_code == 403
        assert "vito may not open a terminal in job" in refused.json()["detail"]
    assert lab.state_of(job) == "RUNNING"
    with terminal(lab, "viola", job=str(job)) as left:
        left.type("echo pid=$$")
        left.wait_for(r"pid=(\d+)\s")
        lab.head("scancel", str(job))
        assert left.end()[0] == "code"


def test_login_terminal_is_the_persons_and_ends_with_its_connection(lab: Lab) -> None:
    with terminal(lab, "viola") as shell:
        shell.type("echo where=$(hostname) who=$(id -un) home=$PWD; tty")
        assert shell.wait_for(r"where=([\w-]+) who") == "lab-head"
        assert shell.wait_for(r"who=(\w+) home") == "viola"
        assert shell.wait_for(r"(/dev/pts/\d+)")
        shell.type("echo pid=$$; exec sleep 4321")
        shell.wait_for(r"pid=(\d+)\s")
    lab.wait(lambda: not lab.head("pgrep", "-f", "sleep 4321", check=False).out, "the shell to end with its terminal")
