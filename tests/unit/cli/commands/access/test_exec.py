"""exec runs a command on the login node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_exec_passes_command_output_and_exit_code_through(cli: Cli) -> None:
    def command(*_: Any) -> Iterator[tuple[str, bytes]]:
        yield from (("out", b"\xff "), ("err", b"err\n"), ("out", b"out"), ("code", b"3"))

    cli.api.on("commands.stream", command)
    done = cli("exec", "lab", "-u", "alice", "--", "sh", "-c", "exit 3", "--", "-u")
    assert (done.code, done.raw, done.err) == (3, b"\xff out", "err\n")
    (name, argv, user, _), _ = cli.api.named("commands.stream")[0]
    assert (name, argv, user) == ("lab", ["sh", "-c", "exit 3", "--", "-u"], "alice")


def test_exec_ends_the_command_when_interrupted(cli: Cli) -> None:
    ended = []

    def command(*_: Any) -> Iterator[tuple[str, bytes]]:
        try:
            yield "out", b"begun\n"
            raise KeyboardInterrupt
        finally:
            ended.append(True)

    cli.api.on("commands.stream", command)
    done = cli("exec", "lab", "--", "sleep", "99")
    assert (done.code, done.out, ended) == (130, "begun\n", [True])


def test_exec_reads_piped_stdin_and_ignores_dev_null(home: Path) -> None:
    """In a process of its own: only a real descriptor tells a pipe from nothing."""
    script = """
from headway.cli.commands.access.exec import _stdin
read = _stdin()
print(read and [read(), read()])
"""
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, input=b"hi", capture_output=True, check=True).stdout == b"[b'hi', b'']\n"
    none = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert none.stdout == b"None\n"


@pytest.mark.parametrize("words", [["lab"], ["lab", "--"], ["lab", "hostname"]])
def test_exec_requires_a_command_after_double_dash(cli: Cli, words: list[str]) -> None:
    assert cli("exec", *words).code == 2
