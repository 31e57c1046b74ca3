"""The helper's `run` passes input, output and exit code of an interactive command through, and ends it with its
client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import NotFound
from headway.jobs.remote.interactive_command import run_interactive
from headway.jobs.remote.user_helper import helper_argv
from tests.support.clusters import builders

HEAD = builders.machine("lab-head")


class Talk:
    def __init__(self, *said: tuple[str, bytes]) -> None:
        self.said = said

    async def converse(
        self, machine: Any, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        assert (machine, argv[0]) == (HEAD, "python3")
        for one in self.said:
            yield one


async def nothing() -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


async def test_command_output_is_passed_on_unchanged() -> None:
    said = [("err", b"a"), ("out", b"\0refused\0 no"), ("code", b"97")]
    assert [one async for one in run_interactive(Talk(*said), HEAD, "alice", ["x"], nothing())] == said


async def test_refused_user_raises_not_found() -> None:
    talk = Talk(("err", b"\0refused\0there is no user zed on lab-head\n"), ("code", b"97"))
    with pytest.raises(NotFound, match="there is no user zed"):
        _ = [one async for one in run_interactive(talk, HEAD, "zed", ["id"], nothing())]


def start(*argv: str, **others: Any) -> subprocess.Popen[bytes]:
    words = helper_argv({"do": "run", "user": "root", "argv": list(argv)})
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words[1:]], stdin=pipe, stdout=pipe, stderr=pipe, **others)


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127), (["/etc"], 126)],
)
def test_watcher_exits_with_the_code_of_the_command(argv: list[str], code: int) -> None:
    with start(*argv) as program:
        program.communicate(timeout=60)
        assert program.returncode == code


def test_pipe_that_is_closed_early_is_no_error() -> None:
    with start("bash", "-c", "yes | head -1") as program:
        assert program.communicate(timeout=60) == (b"y\n", b"")


def test_watcher_passes_stdin_stdout_and_stderr_through() -> None:
    with start("sh", "-c", "cat; echo err >&2") as program:
        assert program.communicate(b"in", timeout=60) == (b"in", b"err\n")


def test_command_and_its_children_end_when_the_reader_closes() -> None:
    with start("sh", "-c", "sleep 300 & echo $!; wait") as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        program.stdout.close()
        assert program.wait(timeout=60) == 128 + signal.SIGTERM
    ends = time.monotonic() + 60
    while alive(child):
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_command_ends_when_its_watcher_is_terminated() -> None:
    with start("sh", "-c", "echo begun; exec sleep 300") as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.terminate()
        assert program.wait(timeout=60) == 128 + signal.SIGTERM


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
