"""The only module that uses SSH: commands on machines (`Connections.remote`, `stream`), forwarded sockets, host keys.

Commands are argv lists and have a time limit. A failed command raises CommandFailed, as in `process.run_process`, with the name
of the machine; a machine that can't be reached raises Unreachable."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, Refused, Unanswered, Unreachable
from headway.transport.connect import CONNECT_TIMEOUT_S, KEEPALIVE_S, Dialer, HostKeyChanged, Root, SudoRefused
from headway.transport.forwarded_socket import bridge_socket
from headway.transport.process import CommandResult, command_result
from headway.transport.program_io import CHUNK, MAX_OUTPUT, OnLine, Sink, pump, write_all, write_pieces

_SESSIONS_PER_LINK = 8  # sshd's default limit is 10 sessions per connection
_END_S = 5.0  # longest time between the end of a command's output and its exit status
_FAN_OUT = 48  # concurrent remote commands, over all machines of a cluster
# Bytes of a command. A machine's shell refuses a word of 128 KiB, and sshd closes a connection with all its sessions
# for a packet of 256 KiB; quoting turns one quote character into five.
_LONGEST = 128 * 1024 - 1
# Commands with a longer limit (package installation on many machines) have their own slots, so that they do not delay
# queries
_LONG_S = 600.0


@dataclass(eq=False)
class _Link:
    """One SSH connection to a machine, and the number of sessions that use it."""

    machine: Machine
    connection: Any
    root: Root  # how commands become root over it
    busy: int = 0
    over: bool = False  # takes no new sessions; running ones may finish

    @property
    def alive(self) -> bool:
        """Returns whether it takes new sessions."""
        return not self.over and not self.connection.is_closed()

    def end_session(self) -> None:
        """Counts one session less; a retired connection is closed after its last session."""
        self.busy -= 1
        self._end()

    def retire(self) -> None:
        """Refuses new sessions; the connection is closed once none is left."""
        self.over = True
        self._end()

    def _end(self) -> None:
        if self.over and not self.busy:
            self.connection.abort()


@dataclass(eq=False)
class _Peer:
    """All connections to one machine."""

    links: list[_Link] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class _Forward:
    """A forwarded socket."""

    path: str
    link: _Link
    listener: Any


class RemoteProcess:
    """A command that runs until it is closed and is used for many requests (`Connections.hold`). The caller must close
    it."""

    def __init__(self, machine: Machine, process: Any, ends: contextlib.AsyncExitStack) -> None:
        self._machine = machine
        self._process = process
        self._ends = ends

    @property
    def over(self) -> bool:
        """Returns whether the command or its connection has ended."""
        return bool(self._process.stdout.at_eof() or self._process.channel.is_closing())

    async def write(self, data: bytes) -> None:
        """Writes to the command's stdin. Raises Unreachable if the connection or the command has ended."""
        import asyncssh

        try:
            for start in range(0, len(data), CHUNK):
                self._process.stdin.write(data[start : start + CHUNK])
                await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise Unreachable(f"{self._machine.name} accepts no more input: {error}") from error

    async def read(self) -> bytes:
        """Returns the next output, at least one byte; b"" if no more will come."""
        import asyncssh

        try:
            return bytes(await self._process.stdout.read(CHUNK))
        except (asyncssh.Error, OSError):
            return b""

    async def ended(self) -> bool:
        """Returns whether the machine reported the command's end; after a broken connection that is unknown, and False.

        Call it only after `read` returned b"": by then all output has arrived."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait_closed()
        return self._process.returncode is not None

    @property
    def code(self) -> int | None:
        """Returns the exit code of a command that has ended, 128 + the number of the signal that ended it; None while it
        runs, or if the connection broke."""
        return _code(self._process)

    async def errors(self) -> str:
        """Returns what a command that has ended wrote to stderr."""
        import asyncssh

        try:
            return bytes(await self._process.stderr.read()).decode(errors="replace")
        except (asyncssh.Error, OSError):
            return ""

    async def close(self) -> None:
        """Ends the command if it still runs."""
        await self._ends.aclose()


class Remote(Protocol):
    """The part of Connections that most of its users need."""

    async def remote(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        timeout_s: float,
        input: bytes | None = None,  # noqa: A002
        check: bool = True,
    ) -> CommandResult:
        """Runs argv on a machine and returns its result. Raises CommandFailed if `check` and the exit code is not 0,
        Unreachable if the connection broke."""
        ...


class Connections:
    """Pinned SSH connections to the machines of one cluster. They are opened at first use, shared, and reopened when
    they broke.

    `bootstrap_key` is the text of the private key. Only the machine's own host key (`Machine.host_key`) is accepted;
    the user's SSH settings and SSH agent are not used."""

    def __init__(
        self, bootstrap_key: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self._dialer = Dialer(bootstrap_key, connect_timeout_s, keepalive_s)
        # By name and port: a host and the machine in its container have the same name.
        self._peers: dict[tuple[str, int], _Peer] = {}
        self._forwards: dict[tuple[str, str | int], _Forward] = {}
        self._forward_lock = asyncio.Lock()
        self._gate = asyncio.Semaphore(_FAN_OUT)
        self._long = asyncio.Semaphore(_FAN_OUT)
        self._folder: str | None = None

    def use_key(self, bootstrap_key: str) -> None:
        """Sets the key for new connections: a cluster gets its own key at its first apply."""
        self._dialer.use_key(bootstrap_key)

    @property
    def keyless(self) -> bool:
        """Returns whether the cluster had no key when these connections were opened."""
        return self._dialer.keyless

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def remote(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        timeout_s: float,
        input: bytes | None = None,  # noqa: A002
        check: bool = True,
        on_line: OnLine | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Runs argv on a machine. A command ended by a signal has code 128 + its number, as in a shell.

        Raises CommandFailed as `process.run_process` does, and Unreachable if there is no connection or it broke during the
        command."""
        started = time.monotonic()
        # A signal from here does not reach a process that sudo started, so `timeout` ends it.
        bounded = ["timeout", "-k", "5", str(math.ceil(timeout_s) + 2)] if machine.user != "root" else []
        out, err = Sink(max_output, on_line), Sink(max_output, on_line)
        async with self._long if timeout_s > _LONG_S else self._gate:
            try:
                async with asyncio.timeout(timeout_s), self._process(machine, [*bounded, *argv]) as process:
                    await asyncio.gather(
                        pump(process.stdout, out), pump(process.stderr, err), write_all(process.stdin, input)
                    )
                    await process.wait_closed()
                    code = _code(process)
            except TimeoutError:
                text = err.text or f"no end after {timeout_s:g} s"
                raise CommandFailed(argv, None, text, where=machine.name) from None
        if code is None:
            raise Unanswered(f"the connection to {machine.name} broke while it ran {argv[0]}")
        return command_result(
            argv, code, bytes(out.data), bytes(err.data), began=started, check=check, where=machine.name
        )

    async def stream(
        self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None
    ) -> AsyncIterator[bytes]:
        """Yields the bytes of a command's stdout as they arrive. Closing the iterator ends the command.

        Raises CommandFailed if the command failed, Unreachable if the connection broke."""
        async with asyncio.timeout(timeout_s), self._process(machine, argv) as process:
            err = Sink(CHUNK, None)
            process.stdin.write_eof()
            errors = asyncio.ensure_future(pump(process.stderr, err))
            try:
                while chunk := await process.stdout.read(CHUNK):
                    yield chunk
                await errors
            finally:
                errors.cancel()
            await process.wait_closed()
            code = _code(process)
        if code is None:
            raise Unanswered(f"the connection to {machine.name} broke while it ran {argv[0]}")
        if code != 0:
            raise CommandFailed(argv, code, err.text, where=machine.name)

    async def converse(
        self, machine: Machine, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yields ("out" | "err", bytes) as they arrive and, last, ("code", digits of the exit code). `feed` is the
        command's stdin. Closing the iterator sends SIGTERM to the command. Raises Unreachable if the connection
        broke."""
        import asyncssh

        chunks: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(1)

        async def read(kind: str, reader: Any) -> None:
            with contextlib.suppress(asyncssh.Error, OSError):  # the missing exit code shows a broken connection
                while chunk := await reader.read(CHUNK):
                    await chunks.put((kind, chunk))
            await chunks.put((kind, b""))

        async with self._process(machine, argv, end="TERM") as process:
            tasks = [
                asyncio.ensure_future(work)
                for work in (
                    read("out", process.stdout),
                    read("err", process.stderr),
                    write_pieces(process.stdin, feed),
                )
            ]
            try:
                open_ends = 2
                while open_ends:
                    kind, chunk = await chunks.get()
                    if chunk:
                        yield kind, chunk
                    else:
                        open_ends -= 1
                await process.wait_closed()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            code = _code(process)
        if code is None:
            raise Unanswered(f"the connection to {machine.name} broke while it ran {argv[0]}")
        yield "code", b"%d" % code

    async def hold(self, machine: Machine, argv: Sequence[str]) -> RemoteProcess:
        """Starts a command that runs until it is closed. Raises Unreachable if it can't be started."""
        ends = contextlib.AsyncExitStack()
        process = await ends.enter_async_context(self._process(machine, argv))
        return RemoteProcess(machine, process, ends)

    async def wait_ready(self, machine: Machine, *, timeout_s: float) -> None:
        """Returns once sign-in to the machine works. Raises Unreachable after `timeout_s`, and at once if the machine
        shows another host key than the pinned one or sudo refuses."""
        deadline = time.monotonic() + timeout_s
        pause_s = 0.05
        while True:
            try:
                (await self._link_below_session_limit(machine)).end_session()
                return
            except (HostKeyChanged, SudoRefused):
                raise
            except Unreachable as error:
                if time.monotonic() + pause_s > deadline:
                    raise Unreachable(
                        f"{machine.name} did not answer SSH within {timeout_s:g} s: {error.message}",
                        hint=error.hint,
                    ) from error
            await asyncio.sleep(pause_s)
            pause_s = min(0.2, pause_s * 1.3)

    async def knock(self, machine: Machine) -> None:
        """Opens a new connection in addition to the open ones, and closes it. Raises Unreachable."""
        connection = await self._dialer.connect(machine)
        connection.close()

    async def forward_socket(self, machine: Machine, remote_path: str) -> str:
        """Returns the path of a local unix socket (mode 600, folder 700) that leads to `remote_path` on the machine.
        The path stays the same for the life of this pool. Call it again before each use, so that a broken connection
        is reopened."""
        return await self._forward(machine, remote_path)

    async def forward_port(self, machine: Machine, port: int) -> str:
        """Returns the path of a local unix socket that leads to a port on the machine's loopback address; otherwise
        like `forward_socket`."""
        return await self._forward(machine, port)

    async def _forward(self, machine: Machine, goal: str | int) -> str:
        async with self._forward_lock:
            known = self._forwards.get((machine.name, goal))
            if known is not None and known.link.alive and known.link.machine == machine:
                return known.path
            if known is not None:
                known.link.end_session()
                known.listener.close()
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="headway-ssh-")
            path = known.path if known else str(Path(self._folder) / f"{len(self._forwards)}.sock")
            Path(path).unlink(missing_ok=True)
            link = await self._link_below_session_limit(machine)
            try:
                if (
                    link.root.argv
                ):  # only root may open the socket or port, and the SSH server would open it as the user
                    listener = await bridge_socket(path, str(goal), lambda argv: self._process(machine, argv))
                elif isinstance(goal, int):
                    listener = await link.connection.forward_local_path_to_port(path, "127.0.0.1", goal)
                else:
                    listener = await link.connection.forward_local_path(path, goal)
                Path(path).chmod(0o600)
            except BaseException:
                link.end_session()
                raise
            self._forwards[machine.name, goal] = _Forward(path, link, listener)
            return path

    async def drop(self, name: str) -> None:
        """Closes the connections to a machine that was removed or created again."""
        for key in [key for key in self._peers if key[0] == name]:
            for link in self._peers.pop(key).links:
                link.connection.abort()

    async def close(self) -> None:
        """Closes every connection and forwarded socket."""
        connections = [link.connection for peer in self._peers.values() for link in peer.links]
        for forward in self._forwards.values():
            forward.listener.close()
        self._peers.clear()
        self._forwards.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            try:
                async with asyncio.timeout(1):
                    await connection.wait_closed()
            except (TimeoutError, OSError):
                connection.abort()
        await self._dialer.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @contextlib.asynccontextmanager
    async def _process(self, machine: Machine, argv: Sequence[str], *, end: str = "KILL") -> AsyncIterator[Any]:
        """Yields a started command. If it still runs at the end, it gets the signal `end`. A connection that turns out
        dead before the command started is replaced once. Raises Refused for a command that is too long."""
        import asyncssh

        if (size := len(shlex.join(argv).encode())) > _LONGEST:
            raise Refused(
                f"the command has {size} bytes with its arguments quoted, more than the {_LONGEST} that {machine.name} takes",
                hint="put the arguments into a file that the command reads",
            )
        for attempt in (1, 2):
            link = await self._link_below_session_limit(machine)
            try:
                process = await link.connection.create_process(shlex.join([*link.root.argv, *argv]), encoding=None)
                if link.root.first:
                    # the command has already ended; its exit status shows the result
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.write(link.root.first)
                break
            except (asyncssh.Error, OSError) as error:
                if not isinstance(error, asyncssh.ChannelOpenError):
                    link.connection.abort()
                link.retire()  # asyncssh reports an aborted connection as open until the next turn of the event loop
                link.end_session()
                if attempt == 2:
                    raise Unreachable(f"{machine.name} did not start {argv[0]}: {error}") from error
            except BaseException:
                link.end_session()
                raise
        try:
            yield process
        except (asyncssh.Error, ConnectionError, BrokenPipeError) as error:
            raise Unanswered(f"the connection to {machine.name} broke while it ran {argv[0]}: {error}") from error
        finally:
            if process.exit_status is None:
                with contextlib.suppress(OSError, asyncssh.Error):
                    process.send_signal(end)
            process.close()
            link.end_session()

    async def _link_below_session_limit(self, machine: Machine) -> _Link:
        """Returns a live connection with room for one more session."""
        peer = self._peers.setdefault((machine.name, machine.port), _Peer())
        async with peer.lock:
            for link in list(peer.links):
                if replace(link.machine, state=machine.state, image=machine.image) != machine:
                    link.retire()
                if not link.alive:
                    if not link.busy or link.connection.is_closed():
                        peer.links.remove(link)
                elif link.busy < _SESSIONS_PER_LINK:
                    link.busy += 1
                    return link
            connection = await self._dialer.connect(machine)
            try:
                root = await self._dialer.root(connection, machine)
            except BaseException:
                connection.abort()
                raise
            link = _Link(machine, connection, root, busy=1)
            peer.links.append(link)
            return link


def _code(process: Any) -> int | None:
    """Returns the exit code; None if the connection ended before it arrived."""
    if process.exit_signal is not None:
        name = f"SIG{process.exit_signal[0]}"
        return 128 + (signal.Signals[name].value if name in signal.Signals.__members__ else 0)
    status = process.exit_status
    return None if status is None else int(status)
