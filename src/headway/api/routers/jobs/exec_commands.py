"""Commands on the login node: run to their end, or with streamed output and with input sent in further requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.api.http.byte_stream import ByteStream, error_frame, not_allowed_frame
from headway.api.http.revalidated_stream import stream_while_allowed
from headway.errors import NotAllowed, NotFound, Refused, TooManyAtOnce
from headway.schemas.stream_frames import frame
from headway.schemas.submissions import CommandIn, ExecIn, ExecOut
from headway.services.app_state import AppState, CommandInput
from headway.services.authorization import cluster_to_work_on, command_slot, write_audit_line
from headway.services.identity import Principal, Right
from headway.services.jobs.commands import run_login_command

router = APIRouter(prefix="/clusters/{name}", tags=["jobs"])
_INPUT_QUEUE = 4  # pieces of input that are kept while the command does not read
_MAX_PIECE = 1024 * 1024  # bytes
_RECHECK_S = 1.0  # while a piece waits: how often to check that command and client are still there
_ENDED = "the command has ended or takes no input"


@router.post("/exec")
async def execute(name: str, request: ExecIn, state: State, who: Member) -> ExecOut:
    """Runs one command on the login node as `user` (default: root for admins, otherwise the person's own user) and
    returns its output when it has ended."""
    return await run_login_command(state, who, name, request)


@router.post("/commands", response_class=ByteStream)
async def run(name: str, ask: CommandIn, request: Request, state: State, who: Member) -> ByteStream:
    """Runs a command on the login node as `user` (default: root for admins, otherwise the person's own user) and
    streams its output in frames. The command is ended when the connection is closed."""
    user = who.command_user(ask.user)
    cluster = await cluster_to_work_on(state, name, who)
    key = (who.person, ask.input)
    if key in state.command_inputs:
        raise Refused("two commands can't have the same input")
    with contextlib.ExitStack() as resources:
        resources.enter_context(command_slot(state, who))
        if ask.input:
            state.command_inputs[key] = CommandInput(asyncio.Queue(_INPUT_QUEUE))
            resources.callback(state.command_inputs.pop, key)
        await write_audit_line(state, who, "exec", name, user=user, program=ask.argv[0][:100])
        resources = resources.pop_all()
    given = state.command_inputs.get(key)
    pieces = state.backend.commands.run_interactive(cluster, ask.argv, user, _feed(given.queue if given else None))

    async def check(who: Principal) -> None:
        if who.command_user(ask.user) != user:
            raise NotAllowed(f"{who.person} may no longer act as {user}")
        await cluster_to_work_on(state, name, who)

    frames = stream_while_allowed(request, _frames(state, request, pieces), Right.RUN_JOBS, check, not_allowed_frame)
    return ByteStream(frames, resources=resources)


@router.post("/commands/{key}/input", status_code=204)
async def put_input(key: str, request: Request, state: State, who: Member) -> Response:
    """Sends the next piece of a command's standard input, at most 1 MiB; an empty piece ends the input. The response
    comes when the command has room for the piece, so send one piece after the other."""
    owner_key = (who.person, key)
    if (given := state.command_inputs.get(owner_key)) is None:
        raise NotFound(_ENDED)
    if given.sending.locked():  # every waiting request stays open as long as the command runs
        raise TooManyAtOnce("another piece of this input is being sent", hint="send the next piece after the answer")
    async with given.sending:
        piece = await _piece(request)
        while state.command_inputs.get(owner_key) is given:
            try:
                async with asyncio.timeout(_RECHECK_S):
                    await given.queue.put(piece)
            except TimeoutError:  # the command does not read at the moment, has ended, or the client has disconnected
                if await request.is_disconnected():
                    break
                continue
            return Response(status_code=204)
    raise NotFound(_ENDED)


async def _piece(request: Request) -> bytes:
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) > _MAX_PIECE:
            raise Refused(f"the piece of input has more than {_MAX_PIECE // 2**20} MiB", hint="split it")
    return bytes(piece)


async def _feed(queue: asyncio.Queue[bytes] | None) -> AsyncIterator[bytes]:
    while queue is not None and (piece := await queue.get()):
        yield piece


async def _frames(
    state: AppState,
    request: Request,
    pieces: AsyncIterator[tuple[str, bytes]],
) -> AsyncIterator[bytes]:
    """Yields the output as frames, until the command ends, the client disconnects or the server stops."""
    ends = [asyncio.ensure_future(_disconnected(request)), asyncio.ensure_future(state.live.stopping.wait())]
    following: asyncio.Future[Any] = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            await asyncio.wait({following, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done() or (piece := following.result()) is None:
                return
            yield frame(*piece)
            following = asyncio.ensure_future(anext(pieces, None))
    except Exception as error:  # the response has begun, so the error can only be its last frame
        yield error_frame(error)
    finally:
        for task in (following, *ends):
            task.cancel()
        await asyncio.gather(following, *ends, return_exceptions=True)
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


async def _disconnected(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
