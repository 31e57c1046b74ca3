"""`run` enforces its limits and reports failures; `run_to_completion` finishes before a cancellation."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from headway.errors import CommandFailed
from headway.transport.process import run_process, run_to_completion
from tests.support.waiting import eventually


async def test_run_returns_output_and_code() -> None:
    ran = await run_process(["sh", "-c", "cat; echo err >&2; exit 3"], timeout_s=60, input=b"a\xffb", check=False)
    assert (ran.code, ran.out, ran.stdout, ran.stderr) == (3, b"a\xffb", "a�b", "err\n")


async def test_run_failure_carries_argv_code_and_stderr() -> None:
    with pytest.raises(CommandFailed) as caught:
        await run_process(["sh", "-c", "echo no luck >&2; exit 4"], timeout_s=60)
    assert (caught.value.code, caught.value.stderr, caught.value.argv[0]) == (4, "no luck\n", "sh")


async def test_run_reports_missing_program() -> None:
    with pytest.raises(CommandFailed, match="program is not installed"):
        await run_process(["headway-no-such-program"], timeout_s=60)


async def test_run_timeout_kills_all_child_processes(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    for timeout_s in (1.0, 4.0, 16.0, 64.0):  # on a busy machine the shell may come to its child later
        began = time.monotonic()
        with pytest.raises(CommandFailed) as caught:
            await run_process(["sh", "-c", f"echo begun; sleep 300 & echo $! > {pid_file}; wait"], timeout_s=timeout_s)
        assert caught.value.code is None
        assert time.monotonic() - began < 120
        if pid_file.exists() and pid_file.read_text():
            assert caught.value.out == b"begun\n"
            break
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 60
    while _running(child) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not _running(child)


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_run_limits_kept_output_but_reads_all() -> None:
    ran = await run_process(["head", "-c", "3000000", "/dev/zero"], timeout_s=60, max_output=1000)
    assert (ran.code, len(ran.out)) == (0, 1000)


async def test_run_ignores_unread_input() -> None:
    assert (await run_process(["true"], timeout_s=60, input=b"x" * 5_000_000)).code == 0


async def test_run_passes_lines_to_callback() -> None:
    heard: list[str] = []
    await run_process(["printf", "one\\ntwo\\r\\nlast"], timeout_s=60, on_line=heard.append)
    assert heard == ["one", "two", "last"]


async def test_run_connects_programs_with_pipe() -> None:
    read_end, write_end = os.pipe()
    _, counted = await asyncio.gather(
        run_process(["head", "-c", "100000", "/dev/zero"], timeout_s=60, stdout=write_end),
        run_process(["wc", "-c"], timeout_s=60, stdin=read_end),
    )
    assert counted.stdout.strip() == "100000"


@pytest.mark.parametrize("waits_for_start", [True, False])
async def test_run_to_completion_finishes_command_before_cancellation(tmp_path: Path, waits_for_start: bool) -> None:
    begun, done = tmp_path / "begun", tmp_path / "done"
    script = f"touch {begun}; sleep 0.3; touch {done}; exit 1"
    task = asyncio.create_task(run_to_completion(run_process(["sh", "-c", script], timeout_s=60)))
    await asyncio.sleep(0)
    if waits_for_start:
        await eventually(begun.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.exists()


async def test_run_to_completion_returns_result_or_raises() -> None:
    assert (await run_to_completion(run_process(["echo", "x"], timeout_s=60))).stdout == "x\n"
    with pytest.raises(CommandFailed):
        await run_to_completion(run_process(["false"], timeout_s=60))
