"""Results of steps are read as files of their owner, never by a command of the owner."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.domain.machines.machine import Machine
from headway.jobs.pipelines.result_files import read_result_files
from headway.transport.process import CommandResult, command_result
from tests.support.clusters import builders
from user_helper.logs import read_part


class Head:
    """Answers as node/user_helper does, without a change of the user."""

    def __init__(self) -> None:
        self.users: list[str] = []

    async def remote(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        timeout_s: float,
        input: bytes | None = None,  # noqa: A002
        **_: Any,
    ) -> CommandResult:
        assert timeout_s == 10
        ask = json.loads(input or b"")["ask"]
        assert ask["do"] == "read"
        self.users = [file["user"] for file in ask["files"]]
        lines = [json.dumps(read_part(file)) for file in ask["files"]]
        return command_result(argv, 0, "\n".join(lines).encode(), b"", began=0, check=False)


async def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "train.json").write_text("{}")
    (tmp_path / "large.json").write_bytes(b" " * 300 * 1024)
    paths = [f"{tmp_path}/{name}.json" for name in ("missing", "pipe", "train", "large")]
    head = Head()
    found = await read_result_files(head, builders.machine("head"), "eve", paths)  # type: ignore[arg-type]
    assert found == {paths[2]: b"{}", paths[3]: b" " * 256 * 1024}
    assert head.users == ["eve"] * 4
