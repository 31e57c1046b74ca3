"""One command on the login, watched: its output is streamed, its input comes in requests of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.api.http.error_handlers import error_out
from headway.api.http.revalidated_stream import while_allowed
from headway.api.routers.jobs.jobs import Octets, over
from headway.errors import NotAllowed, NotFound, Refused, TooManyAtOnce
from headway.schemas.stream_frames import frame
from headway.schemas.submissions import CommandIn
from headway.services.authorization import cluster_to_work_on, command_slot, write_audit_line
from headway.services.context import AppState, Input
from headway.services.identity import Principal, Right

router = APIRouter(prefix="/clusters/{name}/commands", tags=["jobs"])
_AHEAD = 4  # pieces of input kept for a command that does not read yet
_MOST_PIECE = 1024 * 1024  # bytes
_LOOK_S = 1.0
_ENDED = "the command has ended, or takes no input"


@router.post("", response_class=Octets)
async def run(name: str, ask: CommandIn, request: Request, state: State, who: Member) -> Octets:
    """Runs it as `user` (root for admins, or yourself, where none is named) and answers its output as it comes, in frames. The
    command is ended when the connection is."""
    user = who.command_user(ask.user)
    cluster = await cluster_to_work_on(state, name, who)
    key = (who.person, ask.input)
    if key in state.inputs:
        raise Refused("two commands can't have the same input")
    with contextlib.ExitStack() as held:
        held.enter_context(command_slot(state, who))
        if ask.input:
            state.inputs[key] = Input(asyncio.Queue(_AHEAD))
            held.callback(state.inputs.pop, key)
        await write_audit_line(state, who, "exec", name, user=user, program=ask.argv[0][:100])
        held = held.pop_all()
    given = state.inputs.get(key)
    pieces = state.work.converse(cluster, ask.argv, user, _feed(given.ahead if given else None))
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

    async def still(who: Principal) -> None:
        if who.command_user(ask.user) != user:
            raise NotAllowed(f"{who.person} is not {user} any more")
        await cluster_to_work_on(state, name, who)

    frames = while_allowed(request, _frames(state, request, pieces), Right.RUN_JOBS, still, over)
    return Octets(frames, headers=headers, held=held)


@router.post("/{key}/input", status_code=204)
async def put_input(key: str, request: Request, state: State, who: Member) -> Response:
    """The next piece of a command's standard input, at most 1 MiB; an empty one is its end. Answered when the command has room
    for it: one comes after the other."""
    place = (who.person, key)
    if (given := state.inputs.get(place)) is None:
        raise NotFound(_ENDED)
    if given.bringing.locked():  # each would be held here for as long as the command lives
        raise TooManyAtOnce("a piece of this input is on its way already", hint="send the next one when it is answered")
    async with given.bringing:
        piece = await _piece(request)
        while state.inputs.get(place) is given:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await given.ahead.put(piece)
            except TimeoutError:  # it does not read now; it may have ended, and who sent this may be gone
                if await request.is_disconnected():
                    break
                continue
            return Response(status_code=204)
    raise NotFound(_ENDED)


async def _piece(request: Request) -> bytes:
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) > _MOST_PIECE:
            raise Refused(f"a piece of input has more than {_MOST_PIECE // 2**20} MiB", hint="send it in several")
    return bytes(piece)


async def _feed(queue: asyncio.Queue[bytes] | None) -> AsyncIterator[bytes]:
    while queue is not None and (piece := await queue.get()):
        yield piece


async def _frames(
    state: AppState,
    request: Request,
    pieces: AsyncIterator[tuple[str, bytes]],
) -> AsyncIterator[bytes]:
    ends = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(state.live.stopping.wait())]
    following: asyncio.Future[Any] = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            await asyncio.wait({following, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done() or (piece := following.result()) is None:
                return
            yield frame(*piece)
            following = asyncio.ensure_future(anext(pieces, None))
    except Exception as error:  # the answer has begun: what went wrong can only be its last frame
        yield frame("error", error_out(error).model_dump_json().encode())
    finally:
        for task in (following, *ends):
            task.cancel()
        await asyncio.gather(following, *ends, return_exceptions=True)
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


async def _gone(request: Request) -> None:
    """Until whoever asked is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
