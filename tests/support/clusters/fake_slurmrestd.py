"""Stand-ins for slurmrestd and sacct that answer registered requests only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.slurm.adapters import adapter_for
from headway.slurm.reader import SlurmReader
from headway.transport.process import CommandResult
from tests.support.clusters.builders import machine

RECORDED = Path(__file__).parents[2] / "recorded_slurm" / "24.11"
V42 = adapter_for("24.11")


class FakeRest:
    """Answers the registered paths only, and remembers what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def get(self, path: str, params: Any = None, hook: Any = None) -> dict[str, Any]:
        key = path.rsplit("v0.0.42", 1)[1].strip("/").replace("/", "_") + (
            "_detailed" if params == V42.detailed else ""
        )
        self.asked.append(key)
        answer = self.answers[key]
        if isinstance(answer, Exception):
            raise answer
        return dict(json.loads(json.dumps(answer), object_hook=hook))

    async def close(self) -> None: ...


class FakeSacct:
    def __init__(self, stdout: str = "", as_json: str = '{"jobs": []}') -> None:
        self.stdout, self.as_json = stdout, as_json
        self.argv: list[Sequence[str]] = []

    async def remote(self, machine: Any, argv: Sequence[str], **_: Any) -> CommandResult:
        self.argv.append(argv)
        return CommandResult(tuple(argv), 0, self.as_json if "--json" in argv else self.stdout, "", 0.0)

    async def forward_socket(self, machine: Any, remote_path: str) -> str:
        raise AssertionError("the test has its own Rest")


def reader(rest: FakeRest, sacct: FakeSacct | None = None) -> SlurmReader:
    made = SlurmReader(sacct or FakeSacct(), machine("lab-head"), b"k" * 32, "24.11")
    made._rest = rest  # type: ignore[assignment]
    return made
