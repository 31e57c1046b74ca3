"""Opens SSH connections for `transport.ssh`: pinned host keys, jump hosts, and how commands become root on a machine."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from headway.domain.machines.machine import Jump, Machine, MachineState
from headway.errors import HeadwayError, Unreachable

# Fast algorithms that every machine supports
_KEX = ["curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256"]
_CIPHERS = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr"]
_FAILED_S = 5.0  # after a failed try, a jump host is not tried again for this long
_SUDO_S = 15.0  # sudo waits two seconds before it reports a wrong password


class HostKeyChanged(Unreachable):
    """The machine showed another key than the pinned one; further tries are useless."""


CONNECT_TIMEOUT_S = 5.0  # for a connection and sign-in; twice that through a jump host
KEEPALIVE_S = 5.0


class SudoRefused(Unreachable):
    """Sign-in worked, but sudo refused; further tries are useless."""


@dataclass(frozen=True, slots=True)
class Root:
    """The prefix of commands that run as root, and the bytes to send first. Both are empty for a machine whose user is
    root."""

    argv: tuple[str, ...] = ()
    first: bytes = b""


@dataclass
class _Way:
    """A connection to one jump host. One task connects; all tasks that wait for it share its result."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Any = None
    failure: Unreachable | None = None
    failed_at: float = 0.0


class Dialer:
    """Opens connections, and keeps those to jump hosts. `key` is the text of the private key for machines without a key
    of their own. The user's SSH settings and SSH agent are not used."""

    def __init__(self, key: str, timeout_s: float, keepalive_s: float) -> None:
        self._key_text = key
        self._keys: dict[str, Any] = {}
        self._timeout_s = timeout_s
        self._keepalive_s = keepalive_s
        self._ways: dict[Jump, _Way] = {}

    @property
    def keyless(self) -> bool:
        """Returns whether the cluster has no key yet."""
        return not self._key_text

    def use_key(self, key: str) -> None:
        """Replaces the cluster's key for new connections."""
        if key != self._key_text:
            self._key_text = key
            self._keys.pop("", None)

    async def close(self) -> None:
        """Closes the connections to jump hosts."""
        for way in self._ways.values():
            if way.connection is not None:
                way.connection.abort()
        self._ways.clear()

    async def connect(self, machine: Machine) -> Any:
        """Returns a connection to the machine. Raises Unreachable."""
        tunnel = await self._jump(machine.jump, machine.name) if machine.jump else None
        name = f"{machine.name} ({machine.address})"
        return await self._open(name, machine, tunnel)

    async def root(self, connection: Any, machine: Machine) -> Root:
        """Returns how commands of this connection run as root. Raises SudoRefused.

        It is found out once per connection, so that a password is only sent to a sudo that reads it; a sudo that needs
        no password would pass it on to the command."""
        if machine.user == "root":
            return Root()
        plain = Root(("sudo", "-n", "--"))
        if (await self._run_command(connection, ["sudo", "-k", "-n", "true"], b""))[0] == 0:
            return plain
        password = _password(machine)
        asks = Root(("sudo", "-k", "-S", "-p", "", "--"), password)
        code, output = await self._run_command(connection, [*asks.argv, "true"], password)
        if code == 0:
            return asks
        what, hint = _why_not(machine, code, output)
        raise SudoRefused(what, hint=hint)

    async def host_key(self, address: str, port: int, jump: Jump | None) -> str:
        """Returns the machine's Ed25519 host key as a public key line; it is shown before sign-in. Raises Unreachable."""
        tunnel = await self._jump(jump, address) if jump else ()
        return await _shown(address, port, tunnel, self._timeout_s * 2)

    async def _run_command(self, connection: Any, argv: list[str], stdin: bytes) -> tuple[int, str]:
        import asyncssh

        try:
            async with asyncio.timeout(_SUDO_S):
                ran = await connection.run(shlex.join(argv), input=stdin or None, encoding=None)
        except (TimeoutError, OSError, asyncssh.Error) as error:
            return -1, str(error)
        return int(ran.exit_status or 0) if ran.exit_status is not None else -1, bytes(ran.stderr).decode(
            errors="replace"
        )

    async def _jump(self, jump: Jump, target: str) -> Any:
        """Returns the open connection to a jump host."""
        way = self._ways.setdefault(jump, _Way())
        async with way.lock:
            if way.connection is not None and not way.connection.is_closed():
                return way.connection
            if way.failure is None or monotonic() - way.failed_at >= _FAILED_S:
                try:
                    way.connection, way.failure = await self._through(jump), None
                except Unreachable as error:
                    way.failure, way.failed_at = error, monotonic()
            if way.failure is None:
                return way.connection
            failure = way.failure
        raise type(failure)(f"{failure.message} (on the way to {target})", hint=failure.hint) from failure

    async def _through(self, jump: Jump) -> Any:
        name = f"the jump host {jump.address}"
        key = jump.host_key or await _shown(jump.address, jump.port, (), self._timeout_s * 2)
        like = Machine(name, "", jump.address, MachineState.RUNNING, key, jump.user, jump.port, jump.key)
        return await self._open(name, like, None)

    def _key(self, path: str) -> Any:
        import asyncssh

        if path not in self._keys:
            if not path and not self._key_text:
                raise Unreachable(
                    "the cluster has no key yet", hint="give one of your keys in the cluster file: key: FILE"
                )
            try:
                self._keys[path] = (
                    asyncssh.read_private_key(path) if path else asyncssh.import_private_key(self._key_text)
                )
            except (OSError, asyncssh.KeyImportError) as error:
                raise HeadwayError(f"the private key {path or 'of the cluster'} can't be used: {error}") from error
        return self._keys[path]

    async def _open(self, name: str, machine: Machine, tunnel: Any) -> Any:
        import asyncssh

        try:
            async with asyncio.timeout(self._timeout_s * (2 if tunnel else 1)):
                return await asyncssh.connect(
                    machine.address,
                    machine.port,
                    tunnel=tunnel or (),
                    username=machine.user,
                    client_keys=[self._key(machine.key_path)],
                    client_certs=(),
                    known_hosts=([asyncssh.import_public_key(machine.host_key)], [], []),
                    config=None,
                    agent_path=None,
                    gss_host=None,
                    preferred_auth="publickey",
                    compression_algs=None,
                    kex_algs=_KEX,
                    encryption_algs=_CIPHERS,
                    keepalive_interval=self._keepalive_s,
                    keepalive_count_max=3,
                )
        except asyncssh.HostKeyNotVerifiable as error:
            raise HostKeyChanged(
                f"{name} answers with another SSH host key than the one pinned, {fingerprint(machine.host_key)}",
                hint="if the machine was reinstalled, say so (docs/howto/own-machines.md); otherwise another machine answers "
                "there: do not trust it",
            ) from error
        except asyncssh.PermissionDenied as error:
            raise Unreachable(
                f"{name} does not accept our key for {machine.user}", hint=self._accept(machine)
            ) from error
        except TimeoutError as error:
            raise Unreachable(f"{name} does not answer SSH on port {machine.port}") from error
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"no SSH to {name}: {error}") from error

    def _accept(self, machine: Machine) -> str:
        """Returns what a person must do so that a machine accepts the key."""
        public = self._key(machine.key_path).export_public_key().decode().strip()
        which = f"the key {machine.key_path}" if machine.key_path else "the cluster's own key"
        return (
            f"{which} must be in {machine.user}'s ~/.ssh/authorized_keys there (local machines: the image's): {public}"
        )


def _password(machine: Machine) -> bytes:
    """Returns the line that sudo reads. Raises SudoRefused."""
    name = f"{machine.name} ({machine.address})"
    if not machine.password_path:
        raise SudoRefused(
            f"{name}: sudo asks {machine.user} for a password, and the cluster file has none",
            hint="give a file with the password, sudo_password: FILE, or set NOPASSWD in sudoers there",
        )
    try:
        text = Path(machine.password_path).read_text().partition("\n")[0]  # sudo reads one line
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SudoRefused(
            f"{name}: the file with sudo's password, {machine.password_path}, can't be read: {reason}",
            hint="put it on the server's machine, readable only by the server",
        ) from error
    return text.encode() + b"\n"


def _why_not(machine: Machine, code: int, output: str) -> tuple[str, str]:
    name, last = f"{machine.name} ({machine.address})", output.strip().splitlines()[-1:] or ["it printed nothing"]
    if code == 127 or "not found" in output:
        return f"{name} has no sudo", f"sign in as root there, or install sudo and allow it for {machine.user}"
    if "not in the sudoers" in output or "not allowed" in output:
        return (
            f"{name}: {machine.user} may not use sudo there",
            "ask its administrator to allow it, or give another user",
        )
    if "incorrect password" in output or "Sorry, try again" in output or "no password was provided" in output:
        return f"{name}: the sudo password of {machine.user} is wrong", f"correct it in {machine.password_path}"
    return f"{name}: sudo does not let {machine.user} become root: {last[0]}", "try it by hand there: sudo -v"


async def _shown(address: str, port: int, tunnel: Any, timeout_s: float) -> str:
    import asyncssh

    try:
        async with asyncio.timeout(timeout_s):
            key = await asyncssh.get_server_host_key(
                address, port, tunnel=tunnel, server_host_key_algs=["ssh-ed25519"], config=None, kex_algs=_KEX
            )
    except (TimeoutError, OSError, asyncssh.Error) as error:
        raise Unreachable(
            f"{address} shows no Ed25519 host key on port {port}: {error or 'no answer'}",
            hint="check that the machine and its SSH server are running",
        ) from error
    if key is None:
        raise Unreachable(f"{address} shows no host key on port {port}")
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(public_key: str) -> str:
    """Returns the fingerprint "SHA256:..." of a public key line, as ssh-keygen -l prints it."""
    import asyncssh

    return str(asyncssh.import_public_key(public_key).get_fingerprint())


def public_of(path: str) -> str:
    """Returns the public key of a private key file in one line; "" for no file or one that can't be read."""
    import asyncssh

    try:
        return " ".join(asyncssh.read_private_key(path).export_public_key().decode().split()[:2]) if path else ""
    except (OSError, asyncssh.KeyImportError):
        return ""
