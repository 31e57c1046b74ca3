"""Carries connections to a Unix socket of the user over standard input and output.

A frame is the connection's number, a letter, the length of the data, and the data. From the server: O opens a
connection, D is data, F the end of the data, X closes both directions, A acknowledges a number of bytes (at most WINDOW
bytes are unacknowledged, so that a slow reader does not fill memory). From the helper: K confirms an open connection, E is
the reason why it could not be opened; D, F and X have the same meaning."""

import asyncio
import os
import struct
import sys

from user_helper import identity

HEAD = struct.Struct("!IcI")
WINDOW = 1 << 20
PIECE = 64 * 1024


def tunnel(request):
    """Becomes the user and carries connections until standard input ends."""
    entry = identity.user_entry(request["user"])
    identity.must_be_current(entry)
    identity.apply_limits(entry)
    identity.become_user(entry)
    os.chdir("/")
    asyncio.run(SocketTunnel(request["path"]).run())
    os._exit(0)


class SocketTunnel:
    """All connections to one Unix socket."""

    def __init__(self, path):
        self.path = path
        self.ends = {}  # number -> End

    async def run(self):
        """Reads frames until standard input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=4 * PIECE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
        self.out = asyncio.StreamWriter(transport, protocol, None, loop)
        while True:
            try:
                number, kind, size = HEAD.unpack(await reader.readexactly(HEAD.size))
                data = await reader.readexactly(size)
            except asyncio.IncompleteReadError:
                return
            if kind == b"O":
                end = self.ends[number] = End(self, number)
                end.task = asyncio.ensure_future(end.run())
            elif number in self.ends:
                await self.ends[number].handle_frame(kind, data)

    async def send(self, number, kind, data=b""):
        """Sends one frame."""
        self.out.write(HEAD.pack(number, kind, len(data)) + data)
        await self.out.drain()


async def connect(path):
    """Returns the streams of a connection to a Unix socket. The path of a socket may have 107 bytes at most, so that of its
    folder's descriptor is used."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


class End:
    """One connection. Frames that arrive before it is open wait in `early`."""

    def __init__(self, tunnel, number):
        self.tunnel, self.number = tunnel, number
        self.early, self.writer = [], None
        self.left, self.more = WINDOW, asyncio.Event()

    async def handle_frame(self, kind, data):
        """Handles one frame from the server."""
        if kind == b"A":
            self.left += int.from_bytes(data, "big")
            self.more.set()
        elif kind == b"X":
            self.task.cancel()
        elif self.writer is None:
            self.early.append((kind, data))
        else:
            try:
                if kind == b"D":
                    self.writer.write(data)
                    await self.writer.drain()
                elif kind == b"F" and self.writer.can_write_eof():
                    self.writer.write_eof()
            except OSError:
                pass  # the reader in `run` reports it

    async def run(self):
        """Opens the connection and sends its data until it is closed."""
        send, number = self.tunnel.send, self.number
        try:
            try:
                reader, self.writer = await connect(self.tunnel.path)
            except OSError as error:
                await send(number, b"E", (error.strerror or str(error)).encode())
                return
            await send(number, b"K")
            early, self.early = self.early, []
            for kind, data in early:
                await self.handle_frame(kind, data)
            while True:
                while self.left <= 0:
                    self.more.clear()
                    await self.more.wait()
                data = await reader.read(min(PIECE, self.left))
                if not data:
                    break
                self.left -= len(data)
                await send(number, b"D", data)
            await send(number, b"F")
            await asyncio.Event().wait()  # the other direction may still be open; X ends it
        except OSError:
            await send(number, b"X")
        finally:
            self.tunnel.ends.pop(number, None)
            if self.writer is not None:
                self.writer.close()
