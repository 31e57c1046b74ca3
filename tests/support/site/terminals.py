"""Shells behind the terminal's page: one that only prints its prompt, and a real one on a pseudo-terminal of this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

from headway.domain.cluster import Cluster
from headway.jobs.remote.user_helper import helper_argv


async def prompt(
    cluster: Cluster, argv: Sequence[str], user: str, size: tuple[int, int], feed: AsyncIterator[bytes]
) -> AsyncIterator[tuple[str, bytes]]:
    """Prints a prompt, and ends with its input."""
    where = "demo-1-1" if "srun" in argv else "demo-head"
    yield "out", f"\x1b[32m{user}@{where}\x1b[0m:~$ ".encode()
    async for _ in feed:
        pass
    yield "code", b"0"


async def real_shell(
    cluster: Cluster, argv: Sequence[str], user: str, size: tuple[int, int], feed: AsyncIterator[bytes]
) -> AsyncIterator[tuple[str, bytes]]:
    """Runs a shell through the program that runs on clusters."""
    shell = [
        "env",
        "-i",
        "PATH=/usr/bin:/bin",
        "TERM=xterm-256color",
        "LANG=C.UTF-8",
        "PS1=ready> ",
        "bash",
        "--norc",
        "--noprofile",
    ]
    request = {"do": "terminal", "user": "root", "argv": shell, "rows": size[0], "columns": size[1]}
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *helper_argv(request)[1:],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    sending = asyncio.create_task(_send(program.stdin, feed))
    try:
        while piece := await program.stdout.read(4096):
            yield "out", piece
        yield "code", str(await program.wait()).encode()
    finally:
        sending.cancel()
        if program.returncode is None:
            program.terminate()
        await program.wait()


async def _send(to: asyncio.StreamWriter, feed: AsyncIterator[bytes]) -> None:
    async for piece in feed:
        to.write(piece)
        await to.drain()
    to.close()
