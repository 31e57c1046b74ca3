"""A local Unix socket that is connected to a socket or port on a machine which only root may open: for each connection, root runs
node/programs/socket_bridge.py there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from headway.errors import HeadwayError
from headway.transport.program_io import CHUNK
from headway.transport.remote_program import program_source

Start = Callable[[Sequence[str]], AbstractAsyncContextManager[Any]]


async def bridge_socket(path: str, goal: str, start: Start) -> asyncio.Server:
    """Listens at `path` and connects each client to `goal` on the machine: the path of a socket, or a port of its
    loopback address. `start` runs a command there as root and yields its process."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with start(["python3", "-I", "-S", "-c", program_source("socket_bridge"), goal]) as process:
                out = asyncio.ensure_future(_copy(reader, process.stdin))
                try:
                    while chunk := await process.stdout.read(CHUNK):
                        writer.write(chunk)
                        await writer.drain()
                finally:
                    out.cancel()
        except (HeadwayError, OSError):
            pass  # the client sees the connection end
        finally:
            writer.close()

    return await asyncio.start_unix_server(serve, path)


async def _copy(reader: asyncio.StreamReader, stdin: Any) -> None:
    while chunk := await reader.read(CHUNK):
        stdin.write(chunk)
        await stdin.drain()
    stdin.write_eof()
