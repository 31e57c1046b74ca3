"""SSH connections enforce their limits, report failures and pin host keys, against a real SSH server in this process
on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from headway.domain.machines.machine import Machine, MachineState
from headway.errors import CommandFailed, Refused, Unreachable
from headway.transport.ssh import Connections
from tests.support.machines.ssh_server import Server, serving

# Warnings of the test server when it is closed while a command runs.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine 'Queue.join':RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


async def test_remote_arguments_are_not_interpreted_by_shell(server: Server) -> None:
    async with Connections(server.key) as ssh:
        words = ["a b", "$(id)", "';reboot", "*", "new\nline", ""]
        ran = await ssh.remote(server.machine, ["printf", "<%s>", *words], timeout_s=60)
    assert ran.stdout == "".join(f"<{word}>" for word in words)


async def test_remote_failure_names_the_machine(server: Server) -> None:
    async with Connections(server.key) as ssh:
        with pytest.raises(CommandFailed, match="on lab-1-1 ended with 5: broken") as caught:
            await ssh.remote(server.machine, ["sh", "-c", "echo broken >&2; exit 5"], timeout_s=60)
        assert caught.value.code == 5
        assert (await ssh.remote(server.machine, ["false"], timeout_s=60, check=False)).code == 1


async def test_held_command_that_ended_tells_its_exit_code_and_error(server: Server) -> None:
    async with Connections(server.key) as ssh:
        held = await ssh.hold(server.machine, ["sh", "-c", "echo broken >&2; exit 5"])
        try:
            assert await held.read() == b""
            assert (await held.ended(), held.code, await held.errors()) == (True, 5, "broken\n")
        finally:
            await held.close()


async def test_remote_command_accepts_large_input(server: Server) -> None:
    async with Connections(server.key) as ssh:
        ran = await ssh.remote(server.machine, ["wc", "-c"], timeout_s=60, input=b"x" * 3_000_000)
    assert ran.stdout.strip() == "3000000"


async def test_remote_command_times_out(server: Server) -> None:
    async with Connections(server.key) as ssh:
        with pytest.raises(CommandFailed) as caught:
            await ssh.remote(server.machine, ["sleep", "300"], timeout_s=0.3)
        assert caught.value.code is None
        assert (await ssh.remote(server.machine, ["echo", "still"], timeout_s=60)).stdout == "still\n"


async def test_commands_share_connection_up_to_sshd_session_limit(server: Server) -> None:
    async with Connections(server.key) as ssh:
        for _ in range(3):
            await ssh.remote(server.machine, ["true"], timeout_s=60)
        assert len(server.connections) == 1
        await asyncio.gather(*(ssh.remote(server.machine, ["sleep", "0.2"], timeout_s=60) for _ in range(12)))
        assert len(server.connections) == 2


async def test_refuses_command_too_long_for_sshd(server: Server) -> None:
    """OpenSSH's server closes the connection, which others' commands use as well, at a command of 256 KiB. A quote
    takes five bytes."""
    async with Connections(server.key) as ssh:
        other = asyncio.create_task(ssh.remote(server.machine, ["sh", "-c", "sleep 0.2; echo on"], timeout_s=60))
        with pytest.raises(Refused, match="more than the 131071"):
            await ssh.remote(server.machine, ["true", "'" * 119_000], timeout_s=60)
        with pytest.raises(Refused):
            await ssh.remote(server.machine, ["true", "ä" * 70_000], timeout_s=60)
        assert (await ssh.remote(server.machine, ["true", "'" * 26_000], timeout_s=60)).code == 0
        assert (await other).stdout == "on\n"
        assert len(server.connections) == 1


async def test_reconnects_after_broken_connection(server: Server) -> None:
    async with Connections(server.key) as ssh:
        await ssh.remote(server.machine, ["true"], timeout_s=60)
        server.connections[0].abort()
        assert (await ssh.remote(server.machine, ["echo", "back"], timeout_s=60)).stdout == "back\n"


async def test_connection_broken_during_command_raises_unreachable(server: Server) -> None:
    async with Connections(server.key) as ssh:
        await ssh.remote(server.machine, ["true"], timeout_s=60)
        task = asyncio.create_task(ssh.remote(server.machine, ["sh", "-c", "echo go; exec sleep 300"], timeout_s=60,
                                              on_line=lambda _: server.connections[0].abort()))  # fmt: skip
        with pytest.raises(Unreachable, match="broke"):
            await task


async def test_connection_broken_during_conversation_raises_unreachable(server: Server) -> None:
    """As when a host loses its power while the node image is copied to it."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            for connection in server.connections:
                connection.abort()

    async with asyncio.timeout(60), Connections(server.key) as ssh:
        with pytest.raises(Unreachable, match="the connection to lab-1-1 broke while it ran cat"):
            async for _ in ssh.converse(server.machine, ["cat"], endless()):
                pass


async def test_wait_ready_fails_at_once_on_changed_host_key(server: Server) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    async with Connections(server.key) as ssh:
        began = time.monotonic()
        with pytest.raises(Unreachable, match="another SSH host key"):
            await ssh.wait_ready(replace(server.machine, host_key=other), timeout_s=600)
        assert time.monotonic() - began < 300


async def test_rejected_client_key_raises_unreachable(server: Server) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    async with Connections(stranger) as ssh:
        with pytest.raises(Unreachable, match="does not accept our key"):
            await ssh.remote(server.machine, ["true"], timeout_s=60)


async def test_wait_ready_waits_until_server_starts() -> None:
    host, client = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    async with serving(0, host, client) as first:
        machine, key = first.machine, first.key
    async with Connections(key) as ssh:
        with pytest.raises(Unreachable):
            await ssh.remote(machine, ["true"], timeout_s=60)
        waiting = asyncio.create_task(ssh.wait_ready(machine, timeout_s=60))
        async with serving(machine.port, host, client):
            await waiting
            assert (await ssh.remote(machine, ["echo", "up"], timeout_s=60)).stdout == "up\n"


async def test_wait_ready_gives_up_after_timeout() -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    nobody = Machine("lab-1-1", "lab", "127.0.0.1", MachineState.RUNNING, key.export_public_key().decode(), port=1)
    async with Connections(key.export_private_key().decode()) as ssh:
        with pytest.raises(Unreachable, match=r"did not answer SSH within 0\.3 s"):
            await ssh.wait_ready(nobody, timeout_s=0.3)


async def test_stream_yields_output_immediately_and_reports_exit_code(server: Server) -> None:
    async with Connections(server.key) as ssh:
        async with contextlib.aclosing(ssh.stream(server.machine, ["sh", "-c", "echo first; exec sleep 300"])) as heard:  # type: ignore[type-var]
            assert await anext(heard) == b"first\n"
        with pytest.raises(CommandFailed, match="ended with 2"):
            async for _ in ssh.stream(server.machine, ["sh", "-c", "exit 2"]):
                pass


async def test_forwarded_socket_survives_broken_connection(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "there.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    async def ask(path: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"you\n")
        try:
            return await reader.read()
        finally:
            writer.close()

    listener = await asyncio.start_unix_server(answer, target)
    async with Connections(server.key) as ssh:
        path = await ssh.forward_socket(server.machine, str(target))
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert await ask(path) == b"hello you\n"
        server.connections[0].abort()
        while path and len(server.connections) < 2:
            assert await ssh.forward_socket(server.machine, str(target)) == path
            await asyncio.sleep(0.01)
        assert await ask(path) == b"hello you\n"
    listener.close()
    assert not Path(path).exists()


async def test_just_lost_connection_is_not_reused(server: Server) -> None:
    async with Connections(server.key) as ssh:
        await ssh.remote(server.machine, ["true"], timeout_s=60)
        (link,) = ssh._peers[server.machine.name, server.machine.port].links
        link.connection.abort()  # it reports itself as open until the event loop has run
        assert (await ssh.remote(server.machine, ["true"], timeout_s=60)).code == 0
        assert len(server.connections) == 2


@pytest.mark.parametrize("why", ["no room", "another address"])
async def test_connection_without_free_sessions_lets_running_commands_finish(
    server: Server, tmp_path: Path, why: str
) -> None:
    """sshd may count sessions that have ended here as open; and callers with an older record of the machine use the
    connection too."""
    os.mkfifo(tmp_path / "end")
    begun = asyncio.Event()
    argv = ["sh", "-c", 'echo begun; cat "$1"', "sh", str(tmp_path / "end")]
    async with Connections(server.key) as ssh:
        first = asyncio.create_task(
            ssh.remote(server.machine, argv, timeout_s=60, on_line=lambda _: begun.set()),
        )
        await begun.wait()
        (link,) = ssh._peers[server.machine.name, server.machine.port].links
        asked = replace(server.machine, address="localhost") if why == "another address" else server.machine

        async def refuse(*_: object, **__: object) -> None:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "open failed")

        link.connection.create_process = refuse
        assert (await ssh.remote(asked, ["echo", "more"], timeout_s=60)).stdout == "more\n"
        await asyncio.to_thread((tmp_path / "end").write_text, "end")
        assert (await first).stdout == "begun\nend"
        assert link.connection.is_closed(), "by the last of its commands"
        assert len(server.connections) == 2


async def test_command_exiting_before_reading_stdin_keeps_connection(server: Server) -> None:
    async with Connections(server.key) as ssh:
        await ssh.remote(server.machine, ["true"], timeout_s=60)
        (link,) = ssh._peers[server.machine.name, server.machine.port].links
        link.root = replace(link.root, first=b"secret\n")
        start = link.connection.create_process

        async def ended(*words: object, **more: object) -> Any:
            process = await start(*words, **more)
            await process.wait_closed()
            return process

        link.connection.create_process = ended
        assert (await ssh.remote(server.machine, ["true"], timeout_s=60)).code == 0
        assert len(server.connections) == 1
