"""Commands on a cluster's login node: run to their end, or with streamed output and with input in further requests."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from headway.errors import NotAllowed, NotFound, Refused, TooManyAtOnce
from headway.schemas.submission.exec_commands import CommandIn, ExecIn, ExecOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState, CommandInput

MAX_AUDIT_ARGUMENTS = 4_000  # characters of a command's arguments in the audit trail
INPUT_QUEUE = 4  # pieces of input that are kept while the command does not read
RECHECK_S = 1.0  # while a piece of input waits: how often to check that command and sender are still there
_ENDED = "the command has ended or takes no input"


@dataclass(frozen=True, slots=True)
class LoginCommand:
    """A command whose output is streamed. `pieces` are (stream, bytes); `check` raises NotAllowed when the person may
    no longer run it."""

    pieces: AsyncIterator[tuple[str, bytes]]
    check: Callable[[Principal], Awaitable[None]]


async def run_login_command(state: AppState, who: Principal, name: str, request: ExecIn) -> ExecOut:
    """Runs one command to its end as the named user (default: root for admins, otherwise the person's own user), and
    returns its exit code and output."""
    user = who.command_user(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    await write_audit_line(state, who, "exec", name, user=user, **_audit_detail(state, request.argv))
    with command_slot(state, who):
        return await state.backend.commands.run_command(cluster, request, user)


async def open_login_command(
    state: AppState, who: Principal, name: str, request: CommandIn, resources: contextlib.ExitStack
) -> LoginCommand:
    """Returns a command that starts when its output is read, as the named user (default: root for admins, otherwise
    the person's own user). `resources` gets what must be released after it. Raises NotAllowed, Refused if the person's
    input of this name is in use, and TooManyAtOnce."""
    user = who.command_user(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    key = (who.person, request.input)
    if key in state.command_inputs:
        raise Refused("two commands can't have the same input")
    with contextlib.ExitStack() as entered:
        entered.enter_context(command_slot(state, who))
        if request.input:
            state.command_inputs[key] = CommandInput(asyncio.Queue(INPUT_QUEUE))
            entered.callback(state.command_inputs.pop, key)
        await write_audit_line(state, who, "exec", name, user=user, **_audit_detail(state, request.argv))
        resources.push(entered.pop_all())
    given = state.command_inputs.get(key)

    async def check(who: Principal) -> None:
        if who.command_user(request.user) != user:
            raise NotAllowed(f"{who.person} may no longer act as {user}")
        await cluster_to_work_on(state, name, who)

    pieces = state.backend.commands.run_interactive(
        cluster, request.argv, user, feed_of(given.queue if given else None)
    )
    return LoginCommand(pieces, check)


async def send_input(
    state: AppState,
    who: Principal,
    key: str,
    read_piece: Callable[[], Awaitable[bytes]],
    is_disconnected: Callable[[], Awaitable[bool]],
) -> None:
    """Gives a command the next piece of its input, and returns when the command has room for it. The piece is read only
    when it is its turn. Raises NotFound if the command has ended, and TooManyAtOnce while another piece waits."""
    await add_input(state, (who.person, key), read_piece, is_disconnected)


async def add_input(
    state: AppState,
    owner_key: tuple[str, str],
    read_piece: Callable[[], Awaitable[bytes]],
    is_disconnected: Callable[[], Awaitable[bool]],
) -> None:
    """Adds a piece to an input of `AppState.command_inputs`, as `send_input` says."""
    if (given := state.command_inputs.get(owner_key)) is None:
        raise NotFound(_ENDED)
    if given.sending.locked():  # every waiting request stays open as long as the command runs
        raise TooManyAtOnce("another piece of this input is being sent", hint="send the next piece after the answer")
    async with given.sending:
        piece = await read_piece()
        while state.command_inputs.get(owner_key) is given:
            try:
                async with asyncio.timeout(RECHECK_S):
                    await given.queue.put(piece)
            except TimeoutError:  # the command does not read at the moment, has ended, or the sender has disconnected
                if await is_disconnected():
                    break
                continue
            return
    raise NotFound(_ENDED)


async def feed_of(queue: asyncio.Queue[bytes] | None) -> AsyncIterator[bytes]:
    """Yields the pieces of an input until an empty one."""
    while queue is not None and (piece := await queue.get()):
        yield piece


def _audit_detail(state: AppState, argv: Sequence[str]) -> dict[str, str]:
    """Returns what the audit trail says of a command: its program, and its arguments only where the server's settings
    ask for them, because arguments may be secret."""
    detail = {"program": argv[0][:100]}
    if state.settings.audit.exec_arguments:
        detail["arguments"] = shlex.join(argv[1:])[:MAX_AUDIT_ARGUMENTS]
    return detail
