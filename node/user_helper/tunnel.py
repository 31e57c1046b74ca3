"""Connections to one socket of the person's, over one standard input and output.

A frame is the connection's number, a letter and the length of what follows. From the far side: O opens a connection, D is
data, F its end, X both ends, A says how many bytes were taken (no more than WINDOW are under way to somebody who reads
slowly). From here: K says that it is open, D, F and X the same, E why it could not be opened."""

import asyncio
import os
import struct
import sys

from user_helper import identity

HEAD = struct.Struct("!IcI")
WINDOW = 1 << 20
PIECE = 64 * 1024


def tunnel(ask):
    entry = identity.person(ask["user"])
    identity.must_be_current(entry)
    identity.limit(entry)
    identity.become(entry)
    os.chdir("/")
    asyncio.run(Tunnel(ask["path"]).run())
    os._exit(0)


class Tunnel:
    def __init__(self, path):
        self.path = path
        self.ends = {}  # number -> End

    async def run(self):
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
                await self.ends[number].take(kind, data)

    async def say(self, number, kind, data=b""):
        self.out.write(HEAD.pack(number, kind, len(data)) + data)
        await self.out.drain()


class End:
    """One connection. What comes before it is open waits in `early`."""

    def __init__(self, tunnel, number):
        self.tunnel, self.number = tunnel, number
        self.early, self.writer = [], None
        self.left, self.more = WINDOW, asyncio.Event()

    async def take(self, kind, data):
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
                pass  # its reader says so

    async def run(self):
        say, number = self.tunnel.say, self.number
        try:
            try:
                reader, self.writer = await asyncio.open_unix_connection(self.tunnel.path)
            except OSError as error:
                await say(number, b"E", (error.strerror or str(error)).encode())
                return
            await say(number, b"K")
            early, self.early = self.early, []
            for kind, data in early:
                await self.take(kind, data)
            while True:
                while self.left <= 0:
                    self.more.clear()
                    await self.more.wait()
                data = await reader.read(min(PIECE, self.left))
                if not data:
                    break
                self.left -= len(data)
                await say(number, b"D", data)
            await say(number, b"F")
            await asyncio.Event().wait()  # the other way may still be open; X ends it
        except OSError:
            await say(number, b"X")
        finally:
            self.tunnel.ends.pop(number, None)
            if self.writer is not None:
                self.writer.close()
