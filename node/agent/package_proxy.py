"""A proxy on the head through which nodes without internet fetch packages. It connects only to the hosts of package indexes
that the cluster file allows, so that it is no way from the nodes to anything else.

  agent.pyz packages ADDRESS PORT HOST...      a HOST that begins with a dot allows all hosts below that domain"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from agent.log import log

CHUNK = 1 << 16
HEAD_S, CONNECT_S, IDLE_S = 20.0, 20.0, 300.0
MOST_HEAD = 32 * 1024  # bytes of a request's head
MOST_CONNECTIONS = 200
_PORTS = (80, 443)
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serve_proxy(address: str, port: str, *hosts: str) -> None:
    """Serves for ever."""
    asyncio.run(_serve(address, int(port), hosts))


async def _serve(address: str, port: int, hosts: Sequence[str]) -> None:
    proxy = PackageProxy(hosts)
    server = await asyncio.start_server(proxy.connection, address, port, limit=MOST_HEAD)
    log(f"package proxy at {address}:{port} for {', '.join(hosts)}")
    async with server:
        await server.serve_forever()


class PackageProxy:
    """Answers CONNECT, and requests for http:// addresses, one per connection. A host given with a port is allowed at this port
    only, any other at 80 and 443."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(host.lower() for host in hosts)
        self._open = 0

    def allows(self, host: str, port: int) -> bool:
        """Returns whether the proxy may connect there."""
        name = host.lower().rstrip(".")
        if f"{name}:{port}" in self._hosts:
            return True
        known = any(name == one or (one.startswith(".") and name.endswith(one)) for one in self._hosts)
        return known and port in _PORTS

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection of a node."""
        self._open += 1
        try:
            if self._open > MOST_CONNECTIONS:
                await _refuse(writer, 503, "too many connections")
            else:
                await self._answer(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass
        finally:
            self._open -= 1
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        if method == "CONNECT":
            host, _, digits = target.rpartition(":")
            port, first = int(digits), b""
        else:
            parts = urlsplit(target)
            host, port = parts.hostname or "", parts.port or 80
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            if parts.scheme != "http":
                return await _refuse(writer, 400, "only CONNECT and http:// addresses")
            headers = b"".join(
                row + b"\r\n"
                for row in rest.split(b"\r\n")
                if row and not row.lower().startswith((b"proxy-", b"connection:", b"keep-alive:"))
            )
            first = f"{method} {path or '/'} {version}\r\n".encode() + headers + b"Connection: close\r\n\r\n"
        if not self.allows(host.strip("[]"), port):
            return await _refuse(
                writer, 403, f"{host}:{port} is no package index of this cluster: packages.hosts in its file"
            )
        try:
            far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), port), CONNECT_S)
        except (OSError, TimeoutError) as error:
            return await _refuse(writer, 502, f"{host}:{port}: {error or 'no answer'}")
        try:
            if first:
                far_writer.write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _relay((reader, writer), (far_reader, far_writer))
        finally:
            far_writer.close()
        return None


async def _relay(near: _Connection, far: _Connection) -> None:
    """Copies both directions until both have ended. Raises TimeoutError when no byte has moved in either direction for IDLE_S
    seconds: during a download the client sends nothing."""
    try:
        async with asyncio.timeout(IDLE_S) as idle:
            await asyncio.gather(_copy(near[0], far[1], idle), _copy(far[0], near[1], idle))
    except TimeoutError:
        for _, writer in (near, far):
            writer.transport.abort()  # a close would wait for a client that reads nothing
        raise


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: asyncio.Timeout) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
            idle.reschedule(asyncio.get_running_loop().time() + IDLE_S)
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, code: int, why: str) -> None:
    body = f"headway: {why}\n".encode()
    head = (
        f"HTTP/1.1 {code} {why}\r\nContent-Length: {len(body)}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
