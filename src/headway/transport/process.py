"""The only module that starts processes: `run_process` until they end, `start_process` to talk to one, `spawn`
detached.

Commands are argv lists, and `run_process` always has a time limit. A failure is CommandFailed with argv, code and stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import CommandFailed, HeadwayError
from headway.transport.program_io import MAX_OUTPUT, OnLine, Sink, pump, write_all

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A finished command. `stdout` and `stderr` are text (undecodable bytes replaced); `out` has the raw bytes of
    stdout."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float
    out: bytes = b""


def command_result(
    argv: Sequence[str], code: int, out: bytes, err: bytes, *, began: float, check: bool, where: str = ""
) -> CommandResult:
    """Returns the result of a command that began at `began` on the monotonic clock. Raises CommandFailed if `check` is
    set and the code is not 0."""
    ran = CommandResult(
        tuple(argv), code, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - began, out
    )
    if check and code != 0:
        raise CommandFailed(argv, code, ran.stderr or ran.stdout, where=where)
    return ran


async def _start(argv: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)
    except FileNotFoundError as error:
        if options.get("cwd") and not Path(options["cwd"]).is_dir():
            raise HeadwayError(f"there is no folder {options['cwd']} to run {argv[0]} in") from error
        hint = f"install {argv[0]} (`make setup`)"
        raise CommandFailed(argv, 127, "the program is not installed here", hint=hint) from error
    except PermissionError as error:
        raise CommandFailed(argv, 126, str(error)) from error


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a process and everything it started: with SIGTERM, then with SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await process.wait()
            if sign is signal.SIGTERM:  # children may still run
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            return


async def run_process(
    argv: Sequence[str],
    *,
    timeout_s: float,
    input: bytes | None = None,  # noqa: A002
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_line: OnLine | None = None,
    max_output: int = MAX_OUTPUT,
    stdin: int | None = None,
    stdout: int | None = None,
) -> CommandResult:
    """Runs a program on this host. `env` is added to this process's environment; `on_line` is called with each line of
    stdout and stderr. `stdin` and `stdout` are file descriptors for pipes between programs; they are closed here
    once the program has them.

    Raises CommandFailed if it can't start, exceeds `timeout_s` (then it is ended with everything it started), or, with
    `check`, ends with a code other than 0."""
    started = time.monotonic()
    none = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
    try:
        process = await _start(
            argv,
            stdin=none if stdin is None else stdin,
            stdout=asyncio.subprocess.PIPE if stdout is None else stdout,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **env} if env else None,
            cwd=cwd,
        )
    finally:
        for handle in (stdin, stdout):
            if handle is not None:
                os.close(handle)
    out, err = Sink(max_output, on_line), Sink(max_output, on_line)
    jobs = [pump(process.stderr, err)]
    if process.stdout is not None:
        jobs.append(pump(process.stdout, out))
    if process.stdin is not None:
        jobs.append(write_all(process.stdin, input))
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*jobs)
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        raise CommandFailed(argv, None, err.text or f"no end after {timeout_s:g} s", out=bytes(out.data)) from None
    except BaseException:
        await _end(process)
        raise
    return command_result(argv, code, bytes(out.data), bytes(err.data), began=started, check=check)


async def run_to_completion(work: Awaitable[T]) -> T:
    """Awaits `work`, which can't be undone half-way: a cancellation is raised only after it has ended. `work` must end
    by itself."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # reads the exception, so that asyncio does not log it as never retrieved
        raise


async def start_process(argv: Sequence[str], *, stderr: int | None = None) -> asyncio.subprocess.Process:
    """Starts a program that runs until it is stopped; the caller writes to its stdin and reads its stdout. The caller
    must call `stop_process`."""
    pipe = asyncio.subprocess.PIPE
    return await _start(argv, stdin=pipe, stdout=pipe, stderr=stderr, limit=1024 * 1024)


# The kernel sends the shell SIGTERM when its parent dies, also by SIGKILL, and the shell ends the whole group; it waits for the
# program, so that a stop leaves it the time to end by itself. Its exit code is the program's.
_WITH_PARENT = """trap 'trap "" TERM; kill -TERM 0' TERM
"$@" &
program=$!
wait $program
code=$?
while kill -0 $program 2>/dev/null; do wait $program; code=$?; done
exit $code"""


async def start_logged_process(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path, install_hint: str
) -> asyncio.subprocess.Process:
    """Starts a program that runs until it is stopped, or until this process ends in any way; its output is appended to `log`,
    mode 600. `env` is added to this process's environment; `install_hint` says how to install the program if it is missing. A
    program that a signal ended has the exit code 128 plus its number. The caller must call `stop_process_group`."""
    if shutil.which(argv[0]) is None:
        raise CommandFailed(argv, 127, "the program is not installed here", hint=install_hint)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        none = asyncio.subprocess.DEVNULL
        return await _start(
            ["setpriv", "--pdeathsig", "TERM", "sh", "-c", _WITH_PARENT, "sh", *argv],
            stdin=none,
            stdout=handle,
            stderr=handle,
            env={**os.environ, **env},
            cwd=cwd,
        )
    finally:
        os.close(handle)


async def stop_process(process: asyncio.subprocess.Process) -> None:
    """Ends a process that `start_process` returned."""
    if process.returncode is None:
        await asyncio.shield(_end(process))


async def stop_process_group(process: asyncio.subprocess.Process) -> None:
    """Ends a process that `start_logged_process` returned and everything it started, also if the process itself has just ended.
    Call it at once then: after the whole group has ended, its number may be given to another."""
    await asyncio.shield(_end(process))


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Starts a program that outlives this process (own session, output appended to `log`, mode 600). Returns its pid."""
    import subprocess

    log.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            env={**os.environ, **env} if env else None,
            start_new_session=True,
            cwd="/",
        ).pid
    finally:
        os.close(handle)
