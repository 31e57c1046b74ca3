"""Clients over a local socket send plain HTTP and load no certificates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from headway.transport.http_socket import http_client


async def test_request_goes_to_the_socket_and_no_authorities_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("certificates of authorities are loaded for plain HTTP")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        text = asked.split()[1]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        writer.close()

    path = str(tmp_path / "socket")
    async with (
        await asyncio.start_unix_server(answer, path),
        http_client(path, "http://head", timeout_s=60) as client,
    ):
        assert (await client.get("/ready")).text == "/ready"
