"""Terminals on a real cluster: a shell inside a job with its GPUs and the login node's shell, each as its person."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from tests.cluster.lab import Lab

from headway.schemas.access.tokens import TokenIn
from headway.schemas.submission.stream_frames import frames

PATIENCE_S = 120


@dataclass
class Terminal:
    """An open terminal. `shown`: all its output so far; `last`: its last frame."""

    api: httpx.Client
    address: str
    key: str
    shown: str = ""
    last: tuple[str, bytes] = ("", b"")
    pieces: queue.Queue[tuple[str, bytes]] = field(default_factory=queue.Queue)

    def read(self, request: dict[str, object]) -> None:
        """Puts all frames of the output into `pieces`."""
        with self.api.stream("POST", self.address, json={"input": self.key, **request}) as answer:
            if answer.status_code != 200:
                self.pieces.put(("refused", answer.read()))
                return
            for piece in frames(answer.iter_raw()):
                self.pieces.put(piece)
        self.pieces.put(("closed", b""))

    def type(self, line: str) -> None:
        self.api.post(f"{self.address}/{self.key}/input", content=f"{line}\r".encode()).raise_for_status()

    def resize(self, rows: int, columns: int) -> None:
        size = {"rows": rows, "columns": columns}
        self.api.put(f"{self.address}/{self.key}/size", json=size).raise_for_status()

    def wait_for(self, pattern: str) -> str:
        """Returns the first match in the output."""
        while not (found := re.search(pattern, self.shown)):
            kind, data = self.pieces.get(timeout=PATIENCE_S)
            self.last = kind, data
            assert kind in ("out", "err"), (kind, data, self.shown)
            self.shown += data.decode(errors="replace")
        return found[1]

    def end(self) -> tuple[str, bytes]:
        """Returns the last frame."""
        while (piece := self.pieces.get(timeout=PATIENCE_S))[0] in ("out", "err"):
            self.shown += piece[1].decode(errors="replace")
        return piece


@contextmanager
def terminal(lab: Lab, person: str, key: str, **request: object) -> Iterator[Terminal]:
    token = lab.client.tokens.create(TokenIn.model_validate({"person": person, "role": "member"})).token
    url = lab.client.url
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE_S) as api:
        opened = Terminal(api, "/api/v1/clusters/lab/terminals", key * 32)
        reader = threading.Thread(target=opened.read, args=(request,), daemon=True)
        reader.start()
        yield opened
    reader.join(PATIENCE_S)


def test_terminal_in_a_job_has_its_gpus_and_its_user(lab: Lab) -> None:
    job = lab.sbatch("viola", "--gpus-per-node=2", "--nodes=2", wrap="srun sleep 600")
    lab.wait_job(job, "RUNNING")
    nodes = lab.client.jobs.get("lab", job).nodes
    with terminal(lab, "viola", "a", job=str(job), node=nodes[1], rows=40, columns=150) as shell:
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
    with terminal(lab, "vito", "b", job=str(job)) as other:
        kind, said = other.end()
        assert (kind, b"vito may not open a terminal in job" in said) == ("refused", True)
    assert lab.state_of(job) == "RUNNING"
    with terminal(lab, "viola", "c", job=str(job)) as left:
        left.type("echo pid=$$")
        left.wait_for(r"pid=(\d+)\s")
        lab.head("scancel", str(job))
        assert left.end()[0] == "code"


def test_login_terminal_is_the_persons_and_ends_with_its_connection(lab: Lab) -> None:
    with terminal(lab, "viola", "d") as shell:
        shell.type("echo where=$(hostname) who=$(id -un) home=$PWD; tty")
        assert shell.wait_for(r"where=([\w-]+) who") == "lab-head"
        assert shell.wait_for(r"who=(\w+) home") == "viola"
        assert shell.wait_for(r"(/dev/pts/\d+)")
        shell.type("echo pid=$$; exec sleep 4321")
        shell.wait_for(r"pid=(\d+)\s")
    lab.wait(lambda: not lab.head("pgrep", "-f", "sleep 4321", check=False).out, "the shell to end with its terminal")
