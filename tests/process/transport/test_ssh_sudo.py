"""Users become root by sudo, and connections pass through another machine: real SSH servers in this process, and a
small stand-in for sudo that reads passwords as sudo does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from headway.domain.machines.machine import Jump, Machine
from headway.errors import Unreachable
from headway.transport.ssh import Connections
from tests.support.machines.ssh_server import Server, serving
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine 'Queue.join':RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SUDO = """\
#!/bin/sh
# As sudo: -n never asks, -S reads lines from standard input, three tries.
asks=stdin
while [ $# -gt 0 ]; do
    case $1 in -n) asks=no ;; -S | -k) ;; -p) shift ;; --) shift; break ;; -*) exit 9 ;; *) break ;; esac
    shift
done
case $FAKE_SUDO in
free) ;;
never) echo "ops is not in the sudoers file." >&2; exit 1 ;;
*)
    [ "$asks" = no ] && { echo "sudo: a password is required" >&2; exit 1; }
    for try in 1 2 3; do
        IFS= read -r line || { echo "sudo: no password was provided" >&2; exit 1; }
        [ "$line" = sesame ] && break
        echo "Sorry, try again." >&2
        [ $try = 3 ] && { echo "sudo: 3 incorrect password attempts" >&2; exit 1; }
    done ;;
esac
AM_ROOT=yes exec "$@"
"""


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a file with sudo's password, and puts the stand-in for sudo above into PATH."""
    program = tmp_path / "bin" / "sudo"
    program.parent.mkdir()
    program.write_text(SUDO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("FAKE_SUDO", "password")
    password = tmp_path / "password"
    password.write_text("sesame\n")
    return password


async def said(server: Server, machine: Machine, stdin: bytes = b"") -> str:
    async with Connections(server.key) as ssh:
        ran = await ssh.remote(machine, ["sh", "-c", "echo root=$AM_ROOT; cat"], timeout_s=60, input=stdin)
    return ran.stdout


async def test_sudo_password_is_separate_from_command_input(ops: Path) -> None:
    async with serving() as server:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        assert await said(server, machine, b"data\n") == "root=yes\ndata\n"


async def test_sends_no_password_to_passwordless_sudo(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sudo that asks for no password would leave the line to the command."""
    monkeypatch.setenv("FAKE_SUDO", "free")
    async with serving() as server:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        assert await said(server, machine, b"data\n") == "root=yes\ndata\n"


async def test_wrong_sudo_password_raises_unreachable(ops: Path) -> None:
    ops.write_text("wrong\n")
    async with serving() as server:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        with pytest.raises(Unreachable, match=r"lab-1-1 \(127.0.0.1\): the sudo password of ops is wrong") as caught:
            await said(server, machine, b"data\n")
        assert str(ops) in caught.value.hint


async def test_missing_required_sudo_password_raises_unreachable(ops: Path) -> None:
    async with serving() as server:
        with pytest.raises(Unreachable, match="asks ops for a password, and the cluster file has none"):
            await said(server, replace(server.machine, user="ops"))


async def test_missing_password_file_raises_unreachable(ops: Path) -> None:
    async with serving() as server:
        machine = replace(server.machine, user="ops", password_path=f"{ops}.gone")
        with pytest.raises(Unreachable, match="can't be read: No such file"):
            await said(server, machine)


async def test_closes_connections_when_sudo_fails(ops: Path) -> None:
    async with serving() as server, Connections(server.key) as ssh:
        machine = replace(server.machine, user="ops", password_path=f"{ops}.gone")
        for _ in range(3):
            with pytest.raises(Unreachable):
                await ssh.remote(machine, ["true"], timeout_s=60)
        await eventually(lambda: all(connection.is_closed() for connection in server.connections))


async def test_user_outside_sudoers_raises_unreachable(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SUDO", "never")
    async with serving() as server:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        with pytest.raises(Unreachable, match="ops may not use sudo there"):
            await said(server, machine)


async def test_wait_ready_fails_at_once_on_wrong_sudo_password(ops: Path) -> None:
    ops.write_text("wrong\n")
    async with serving() as server, Connections(server.key) as ssh:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        async with asyncio.timeout(60):
            with pytest.raises(Unreachable, match="is wrong"):
                await ssh.wait_ready(machine, timeout_s=600)


async def test_forwards_socket_through_sudo(ops: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.sock"

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

    listener = await asyncio.start_unix_server(answer, there)
    async with serving() as server, Connections(server.key) as ssh:
        machine = replace(server.machine, user="ops", password_path=str(ops))
        path = await ssh.forward_socket(machine, str(there))
        assert await asyncio.gather(ask(path), ask(path)) == [b"hello you\n"] * 2
    listener.close()


async def test_connects_through_jump_host_with_pinned_key(tmp_path: Path) -> None:
    """The jump host forwards with its own key, and its host key is pinned too."""
    client = asyncssh.generate_private_key("ssh-ed25519")
    key = tmp_path / "bastion-key"
    key.write_text(client.export_private_key().decode())
    asked: list[tuple[str, int]] = []
    async with serving() as server, forwarding(client, asked) as (port, host_key):
        jump = Jump("127.0.0.1", "guest", port, str(key), host_key)
        async with Connections(server.key) as ssh:
            machine = replace(server.machine, jump=jump)
            assert (await ssh.remote(machine, ["echo", "there"], timeout_s=60)).stdout == "there\n"
        assert asked == [("127.0.0.1", server.machine.port)]
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        async with Connections(server.key) as ssh:
            machine = replace(server.machine, jump=replace(jump, host_key=other))
            with pytest.raises(
                Unreachable,
                match=r"the jump host 127\.0\.0\.1 answers with another SSH host key .* \(on the way to lab-1-1\)",
            ):
                await ssh.remote(machine, ["true"], timeout_s=60)


class forwarding:  # noqa: N801 (used as a function)
    """A server that only forwards connections; as a context it gives (port, host key)."""

    def __init__(self, client: asyncssh.SSHKey, asked: list[tuple[str, int]]) -> None:
        self.client, self.asked = client, asked

    async def __aenter__(self) -> tuple[int, str]:
        asked = self.asked

        class Bastion(asyncssh.SSHServer):
            def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
                asked.append((dest_host, dest_port))
                return True

        host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.listener = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(self.client.export_public_key().decode()),
            server_factory=Bastion,
        )
        return self.listener.sockets[0].getsockname()[1], host_key.export_public_key().decode()

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
