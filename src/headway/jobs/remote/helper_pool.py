"""Keeps helper processes running on the head (node/user_helper as `serve`), each for one user, for submissions and for
reading files.

A new process for each request takes longer than sbatch does: it starts Python, sends its own text and enters the
limits of the user's sessions. A helper has done that once. It ends with its connection; after that, requests start a
new process each until a new helper runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, Unanswered, Unreachable
from headway.jobs.remote.interactive_command import InteractiveConnections
from headway.jobs.remote.user_helper import HelperConnections, helper_argv, stdin_helper_argv
from headway.transport.process import CommandResult, command_result
from headway.transport.program_io import MAX_OUTPUT, StreamSplitter

MAX_HELPERS = 24  # helpers on one head
MAX_HELPERS_PER_USER = 3  # for one user; further requests at the same time start a new process each
HELPER_IDLE_S = 600.0  # without a request
START_S = 30.0
_SERVED = ("sbatch", "read")


class HelperProcess(Protocol):
    """A long-running command on another machine, see transport.ssh."""

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

    async def ended(self) -> bool:
        """Returns whether the machine reported the command's end; False if the connection broke."""
        ...

    async def close(self) -> None:
        """Ends the command if it still runs."""
        ...


class StartsProcesses(HelperConnections, InteractiveConnections, Protocol):
    """The part of Connections that the pool needs."""

    async def hold(self, machine: Machine, argv: Sequence[str]) -> HelperProcess:
        """Starts a command that runs until it is closed. Raises Unreachable if it can't be started."""
        ...


class _NotBegun(Unanswered):
    """The helper ended before it began with the request."""


class _Helper:
    def __init__(self, process: HelperProcess, user: str, used_at: float) -> None:
        self.process = process
        self.user = user
        self.used_at = used_at
        self.busy = True
        self._answers = StreamSplitter(process.read)

    async def started(self) -> bool:
        """Returns whether the helper is ready. Where it is not, a new process will say why."""
        try:
            async with asyncio.timeout(START_S):
                return await self._answers.line() == b"ready"
        except (TimeoutError, Unanswered):
            return False

    async def send_request(self, question: bytes) -> tuple[int, bytes, bytes]:
        """Returns (exit code, stdout, stderr). Raises Unanswered when the helper ends before it answers, and
        _NotBegun when it had not begun."""
        with contextlib.suppress(Unreachable):  # a part may have arrived; only the answer shows it
            await self.process.write(question)
        line = await self._answers.line()
        if line is None and await self.process.ended():
            raise _NotBegun("the helper on the head ended at its start")
        if line == b"begun":
            line = await self._answers.line()
        if line is None:
            raise Unanswered("the helper on the head ended without an answer")
        header = json.loads(line)
        out, err = await self._answers.exactly(header["out"]), await self._answers.exactly(header["err"])
        return int(header["code"]), out, err


class HelperPool:
    """Connections to a head that send submissions and reads to helpers, and everything else directly."""

    def __init__(self, links: StartsProcesses, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._links = links
        self._clock = clock
        self._helpers: list[_Helper] = []
        self._starting = 0

    async def remote(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        timeout_s: float,
        input: bytes | None = None,  # noqa: A002
        check: bool = True,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Runs a command as Connections.remote does. A submission that a helper may have begun is never sent to
        another one; it raises Unanswered."""
        question = input or b""
        request = _served(argv, question)
        helper = await self._helper(machine, str(request.get("user", ""))) if request else None
        if request is not None and helper is not None:
            try:
                return await self._send_to_helper(helper, machine, argv, question, timeout_s, check)
            except Unanswered as error:
                if request["do"] != "read" and not isinstance(error, _NotBegun):
                    raise
        return await self._links.remote(
            machine, argv, timeout_s=timeout_s, input=input, check=check, max_output=max_output
        )

    def stream(self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None) -> AsyncIterator[bytes]:
        """Runs a command without a helper. See Connections.stream."""
        return self._links.stream(machine, argv, timeout_s=timeout_s)

    def converse(
        self, machine: Machine, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Runs a command without a helper. See Connections.converse."""
        return self._links.converse(machine, argv, feed)

    def has_idle_helper(self, user: str) -> bool:
        """Returns whether a running helper of this user is free."""
        return any(helper.user == user and not helper.busy and not self._stale(helper) for helper in self._helpers)

    async def close(self) -> None:
        """Ends all helpers."""
        helpers, self._helpers = self._helpers, []
        for helper in helpers:
            await helper.process.close()

    async def _send_to_helper(
        self,
        helper: _Helper,
        machine: Machine,
        argv: Sequence[str],
        question: bytes,
        timeout_s: float,
        check: bool,
    ) -> CommandResult:
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                code, out, err = await helper.send_request(question)
        except TimeoutError:
            await self._drop(helper)
            raise CommandFailed(argv, None, f"no end after {timeout_s:g} s", where=machine.name) from None
        except BaseException:  # a part of the answer may still arrive, and no other request may read it
            await self._drop(helper)
            raise
        helper.busy, helper.used_at = False, self._clock()
        return command_result(argv, code, out, err, began=began, check=check, where=machine.name)

    async def _helper(self, machine: Machine, user: str) -> _Helper | None:
        """Returns a free helper or a new one; None where no more may start, or the new one does not start."""
        await self._drop_idle_helpers()
        mine = [helper for helper in self._helpers if helper.user == user]
        free = next((helper for helper in mine if not helper.busy), None)
        if free is not None:
            free.busy = True
            return free
        if len(mine) >= MAX_HELPERS_PER_USER or not await self._room():
            return None
        self._starting += 1
        try:
            process = await self._links.hold(machine, helper_argv({"do": "serve", "user": user}))
        except Unreachable:
            return None
        finally:
            self._starting -= 1
        helper = _Helper(process, user, self._clock())
        self._helpers.append(helper)
        try:
            if await helper.started():
                return helper
        except BaseException:
            await self._drop(helper)
            raise
        await self._drop(helper)
        return None

    async def _drop_idle_helpers(self) -> None:
        """Drops helpers that have ended or have been idle for HELPER_IDLE_S. Their processes end by themselves
        some time later."""
        old = [helper for helper in self._helpers if not helper.busy and self._stale(helper)]
        # Removed before the awaits below, so that no other request takes one.
        self._helpers = [helper for helper in self._helpers if helper not in old]
        for helper in old:
            await helper.process.close()

    def _stale(self, helper: _Helper) -> bool:
        return helper.process.over or self._clock() - helper.used_at > HELPER_IDLE_S

    async def _room(self) -> bool:
        """Returns whether one more helper may start, after ending the helper that has been idle longest if the
        head is full."""
        if len(self._helpers) + self._starting < MAX_HELPERS:
            return True
        idle = [helper for helper in self._helpers if not helper.busy]
        if idle:
            await self._drop(min(idle, key=lambda helper: helper.used_at))
        return bool(idle)

    async def _drop(self, helper: _Helper) -> None:
        if helper in self._helpers:
            self._helpers.remove(helper)
        await helper.process.close()


def _served(argv: Sequence[str], question: bytes) -> dict[str, Any] | None:
    """Returns the request to node/user_helper in `question`, or None where a helper can't serve it."""
    if list(argv) != stdin_helper_argv():
        return None
    request: dict[str, Any] = json.loads(question[: question.index(b"\n")])["ask"]
    return request if request["do"] in _SERVED else None
