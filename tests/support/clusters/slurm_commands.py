"""A fake Slurm command line that answers registered argv only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.errors import CommandFailed
from headway.transport.process import CommandResult
from tests.support.clusters.builders import machine

HEAD = machine("lab-head")
OK = (0, "", "")


class Scontrol:
    """Answers registered argv only; `said` lists the received ones in order."""

    def __init__(self, answers: dict[Sequence[str], tuple[int, str, str]]) -> None:
        self.answers = answers
        self.said: list[tuple[str, ...]] = []

    async def remote(self, machine: Any, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        code, out, err = self.answers[tuple(argv)]
        self.said.append(tuple(argv))
        if check and code:
            raise CommandFailed(argv, code, err, where=machine.name)
        return CommandResult(tuple(argv), code, out, err, 0.0)
