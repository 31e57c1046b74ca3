"""A forwarded port behind which one HTTP answer is given."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headway.domain.machines.machine import Machine


class ForwardedPort:
    """Connections with one forwarded port. `body` is the answer, `asked` the body of the last request."""

    def __init__(self, path: Path) -> None:
        self.path, self.port = path, 0
        self.body, self.asked, self.asked_path = b"", b"", ""

    async def forward_port(self, machine: Machine, port: int) -> str:
        assert port == self.port
        return str(self.path)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        self.asked_path = head.split()[1].decode()
        self.asked = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(self.body), self.body))
        writer.close()
