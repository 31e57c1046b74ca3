"""An SSH server in this process, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import asyncssh

from headway.domain.machines.machine import Machine, MachineState


@dataclass
class Server:
    """An SSH server that runs its commands by sh and records connections and commands."""

    machine: Machine
    key: str
    connections: list[Any] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    listener: Any = None


@contextlib.asynccontextmanager
async def serving(port: int = 0, host_key: Any = None, client: Any = None) -> AsyncIterator[Server]:
    """Yields a server on this port (0: a free one); keys that are not given are made."""
    host_key = host_key or asyncssh.generate_private_key("ssh-ed25519")
    client = client or asyncssh.generate_private_key("ssh-ed25519")
    made = Server(
        Machine("lab-1-1", "lab", "127.0.0.1", MachineState.RUNNING, host_key.export_public_key().decode()),
        client.export_private_key().decode(),
    )

    class Counting(asyncssh.SSHServer):
        def connection_made(self, conn: Any) -> None:
            made.connections.append(conn)

        def unix_connection_requested(self, dest_path: str) -> bool:
            return True

    async def work(process: Any) -> None:
        made.commands.append(asyncio.current_task())
        child = await asyncio.create_subprocess_shell(
            process.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        await process.redirect_stdin(child.stdin)

        async def copy(source: Any, target: Any) -> None:
            while chunk := await source.read(65536):
                target.write(chunk)

        try:
            await asyncio.gather(copy(child.stdout, process.stdout), copy(child.stderr, process.stderr))
            process.exit(await child.wait())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()

    made.listener = await asyncssh.listen(
        "127.0.0.1",
        port,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(client.export_public_key().decode()),
        server_factory=Counting,
        process_factory=work,
        encoding=None,
    )
    made.machine = replace(made.machine, port=made.listener.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        made.listener.close()
        for connection in made.connections:
            connection.abort()
        for command in made.commands:
            command.cancel()
        if made.commands:
            await asyncio.wait(made.commands, timeout=60)  # the task that hears of a child's end may be gone by now
        gc.collect()  # so that the filters above apply to the objects of the closed server
