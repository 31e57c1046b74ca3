"""Many connections to one socket on a machine, as the socket's owner, over one session of the pinned SSH connection.

The other end is node/user_helper/tunnel.py, which documents the frames. It runs as the user and is not trusted:
lengths and windows are checked here."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Protocol

from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.jobs.remote.user_helper import helper_argv

HEAD = struct.Struct("!IcI")
WINDOW = 1 << 20
MAX_FRAME = 64 * 1024
OPEN_S = 10.0
_MOST_OPEN = 200  # connections of one tunnel


class TunnelProcess(Protocol):
    """A long-running command on another machine (transport.ssh.Held)."""

    @property
    def over(self) -> bool:
        """Returns whether the command or its connection has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Writes to the command's standard input. Raises Unreachable if the command or its connection has ended."""
        ...

    async def read(self) -> bytes:
        """Returns the next output, at least one byte; b"" if no more will come."""
        ...

    async def close(self) -> None:
        """Ends the command if it still runs."""
        ...


class StartsTunnels(Protocol):
    """The part of Connections that a tunnel needs."""

    async def hold(self, machine: Machine, argv: list[str]) -> TunnelProcess:
        """Starts a command that runs until it is closed. Raises Unreachable if it can't be started."""
        ...


class TunnelConnection:
    """One connection through a tunnel."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel, self._number = tunnel, number
        self._pieces: list[bytes] = []
        self._came = asyncio.Event()
        self._waiting = 0  # bytes not read yet
        self._ended = self._closed = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        """Returns at least a byte, or b"" at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._came.clear()
            await self._came.wait()
        piece = self._pieces.pop(0)
        self._waiting -= len(piece)
        if not self._closed:
            with contextlib.suppress(Unreachable):
                await self._tunnel.send_frame(self._number, b"A", len(piece).to_bytes(4, "big"))
        return piece

    async def write(self, data: bytes) -> None:
        """Sends data. Raises Unreachable if the tunnel is closed."""
        for start in range(0, len(data), MAX_FRAME):
            await self._tunnel.send_frame(self._number, b"D", data[start : start + MAX_FRAME])

    async def write_eof(self) -> None:
        """Ends the sending direction."""
        await self._tunnel.send_frame(self._number, b"F")

    async def close(self) -> None:
        """Closes the connection on both ends."""
        if not self._closed:
            self._closed = True
            self.receive_end()
            self._tunnel.forget_connection(self._number)
            with contextlib.suppress(Unreachable):
                await self._tunnel.send_frame(self._number, b"X")

    # --- called by the tunnel

    def receive_data(self, data: bytes) -> bool:
        """Adds received data. Returns False when the other end sent more than its window."""
        self._waiting += len(data)
        self._pieces.append(data)
        self._came.set()
        return self._waiting <= WINDOW

    def receive_end(self) -> None:
        """Records the end of the data."""
        self._ended = True
        self._came.set()
        if not self.opened.done():
            self.opened.cancel()


class Tunnel:
    """A tunnel, made by `open_tunnel`. Its owner must close it."""

    def __init__(self, pipe: TunnelProcess, where: str) -> None:
        self._pipe, self._where = pipe, where
        self._wires: dict[int, TunnelConnection] = {}
        self._last = 0
        self._lock = asyncio.Lock()
        self._reader = asyncio.ensure_future(self._read())

    @property
    def alive(self) -> bool:
        """Returns whether new connections are possible."""
        return not self._reader.done() and not self._pipe.over

    async def connect(self) -> TunnelConnection:
        """Returns a new connection. Raises Unreachable when nothing listens on the socket."""
        if len(self._wires) >= _MOST_OPEN:
            raise Unreachable("too many connections are open to this notebook", hint="close some of its tabs")
        self._last = (self._last + 1) % (1 << 31)
        wire = self._wires[self._last] = TunnelConnection(self, self._last)
        try:
            await self.send_frame(self._last, b"O")
            async with asyncio.timeout(OPEN_S):
                await wire.opened
        except (TimeoutError, asyncio.CancelledError) as error:
            await wire.close()
            if isinstance(error, asyncio.CancelledError) and not wire.opened.cancelled():
                raise
            raise Unreachable(f"the connection to {self._where} is closed") from None
        except BaseException:
            await wire.close()
            raise
        return wire

    async def close(self) -> None:
        """Ends all connections and the process on the machine."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._end_all()
        with contextlib.suppress(HeadwayError, OSError):
            await self._pipe.close()

    async def send_frame(self, number: int, kind: bytes, data: bytes = b"") -> None:
        """Sends one frame of a connection."""
        async with self._lock:
            await self._pipe.write(HEAD.pack(number, kind, len(data)) + data)

    def forget_connection(self, number: int) -> None:
        """Drops a connection, so that later frames for it are ignored."""
        self._wires.pop(number, None)

    async def _read(self) -> None:
        """Handles frames until the pipe ends or the other end breaks the protocol."""
        buffer = bytearray()
        try:
            while piece := await self._pipe.read():
                buffer += piece
                while len(buffer) >= HEAD.size:
                    number, kind, size = HEAD.unpack_from(buffer)
                    if size > MAX_FRAME:
                        return
                    if len(buffer) < HEAD.size + size:
                        break
                    data = bytes(buffer[HEAD.size : HEAD.size + size])
                    del buffer[: HEAD.size + size]
                    if not self._frame(number, kind, data):
                        return
        finally:
            self._end_all()

    def _frame(self, number: int, kind: bytes, data: bytes) -> bool:
        wire = self._wires.get(number)
        if wire is None:
            return True  # the connection was closed on this side meanwhile
        if kind == b"D":
            return wire.receive_data(data)
        if kind == b"K" and not wire.opened.done():
            wire.opened.set_result(None)
        elif kind == b"E" and not wire.opened.done():
            why = data.decode(errors="replace")[:200]
            wire.opened.set_exception(Unreachable(f"{self._where} does not answer yet: {why}"))
        elif kind in (b"F", b"X"):
            wire.receive_end()
        return True

    def _end_all(self) -> None:
        for wire in list(self._wires.values()):
            wire.receive_end()
        self._wires.clear()


async def open_tunnel(links: StartsTunnels, machine: Machine, user: str, path: str) -> Tunnel:
    """Returns a tunnel to a socket of `user` on the machine. Raises Unreachable. Whether anything listens there
    shows only in `connect`."""
    pipe = await links.hold(machine, helper_argv({"do": "tunnel", "user": user, "path": path}))
    return Tunnel(pipe, machine.name)
