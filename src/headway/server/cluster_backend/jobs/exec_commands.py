"""Runs commands and opens tunnels on clusters."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.errors import Refused, Unreachable
from headway.schemas.submission.exec_commands import ExecIn, ExecOut
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.jobs.remote.tunnel import Tunnel


class CommandsBackend:
    """Implements services.cluster_backend.ClusterCommands."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut:
        from headway.jobs.submission.submit import run_command

        try:
            stdin = base64.b64decode(request.stdin_b64, validate=True)
        except ValueError:
            raise Refused("stdin_b64 is not base64", hint="encode standard input as base64") from None
        slurm = await self._pool.slurm(cluster)
        code, out, err = await run_command(slurm.links, slurm.head, user, request.argv, stdin)
        return ExecOut(code=code, stdout_b64=base64.b64encode(out).decode(), stderr_b64=base64.b64encode(err).decode())

    async def run_interactive(
        self, cluster: Cluster, argv: Sequence[str], user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        from headway.jobs.remote.interactive_command import run_interactive

        slurm = await self._pool.slurm(cluster)
        async with contextlib.aclosing(run_interactive(slurm.links, slurm.head, user, argv, feed)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def run_on_terminal(
        self, cluster: Cluster, argv: Sequence[str], user: str, size: tuple[int, int], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        from headway.jobs.remote.interactive_command import run_on_terminal

        slurm = await self._pool.slurm(cluster)
        running = run_on_terminal(slurm.links, slurm.head, user, argv, size, feed)
        async with contextlib.aclosing(running) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def open_tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Tunnel:
        from headway.jobs.remote.tunnel import open_tunnel

        opened = await self._pool.opened(cluster)
        machine = next((candidate for candidate in await opened.machines(cluster.name) if candidate.name == node), None)
        if machine is None:
            raise Unreachable(f"{node} does not exist", hint=f"headway status {cluster.name}")
        return await open_tunnel(opened.context.connections, machine, user, path)
