"""Commands on the login node, and terminals: run to their end, or with streamed output and with input in further
requests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.api.http.authorized_stream import stream_while_allowed
from headway.api.http.byte_stream import ByteStream, error_frame, not_allowed_frame
from headway.errors import Refused
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.exec_commands import CommandIn, ExecIn, ExecOut, TerminalIn, TerminalSize
from headway.schemas.submission.stream_frames import frame
from headway.services.access.role_rights import Right
from headway.services.app_state import AppState
from headway.services.interruptible_stream import Interrupted, pieces_until
from headway.services.jobs.exec_commands import LoginCommand, open_login_command, run_login_command, send_input
from headway.services.jobs.terminals import open_terminal, resize_terminal, send_keys

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["jobs"])
_MAX_PIECE = 1024 * 1024  # bytes


@router.post("/exec", name="execute")
async def execute_command(name: str, request: ExecIn, state: State, who: Member) -> ExecOut:
    """Runs one command on the login node as `user` (default: root for admins, otherwise the person's own user) and
    returns its output when it has ended."""
    return await run_login_command(state, who, name, request)


@router.post("/commands", response_class=ByteStream, name="run")
async def stream_command(name: str, body: CommandIn, request: Request, state: State, who: Member) -> ByteStream:
    """Runs a command on the login node as `user` (default: root for admins, otherwise the person's own user) and
    streams its output in frames. The command is ended when the connection is closed."""
    resources = contextlib.ExitStack()
    command = await open_login_command(state, who, name, body, resources)
    return _stream(state, request, command, resources)


@router.post("/commands/{key}/input", status_code=204)
async def put_input(key: str, request: Request, state: State, who: Member) -> Response:
    """Sends the next piece of a command's standard input, at most 1 MiB; an empty piece ends the input. The response
    comes when the command has room for the piece, so send one piece after the other."""
    await send_input(state, who, key, lambda: _piece(request), request.is_disconnected)
    return Response(status_code=204)


@router.post("/terminals", response_class=ByteStream, name="terminal")
async def stream_terminal(name: str, body: TerminalIn, request: Request, state: State, who: Member) -> ByteStream:
    """Opens a shell on a terminal, on the login node or in a running job, and streams its output in frames. The shell is ended
    when the connection is closed."""
    resources = contextlib.ExitStack()
    shell = await open_terminal(state, who, name, body, resources)
    return _stream(state, request, shell, resources)


@router.post("/terminals/{key}/input", status_code=204)
async def put_keys(name: str, key: str, request: Request, state: State, who: Member) -> Response:
    """Sends the next keys to a terminal, at most 1 MiB. The response comes when the terminal has room for them, so send one piece
    after the other."""
    await send_keys(state, who, name, key, lambda: _piece(request), request.is_disconnected)
    return Response(status_code=204)


@router.put("/terminals/{key}/size", status_code=204)
async def put_size(name: str, key: str, body: TerminalSize, request: Request, state: State, who: Member) -> Response:
    """Gives a terminal another size."""
    await resize_terminal(state, who, name, key, body, request.is_disconnected)
    return Response(status_code=204)


def _stream(state: State, request: Request, command: LoginCommand, resources: contextlib.ExitStack) -> ByteStream:
    pieces = _frames(state, request, command.pieces)
    frames = stream_while_allowed(request, pieces, Right.RUN_JOBS, command.check, not_allowed_frame)
    return ByteStream(frames, resources=resources)


async def _piece(request: Request) -> bytes:
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) > _MAX_PIECE:
            raise Refused(f"the piece of input has more than {_MAX_PIECE // 2**20} MiB", hint="split it")
    return bytes(piece)


async def _frames(
    state: AppState,
    request: Request,
    pieces: AsyncIterator[tuple[str, bytes]],
) -> AsyncIterator[bytes]:
    """Yields the output as frames, until the command ends, the client disconnects or the server stops."""
    running = pieces_until(pieces, lambda: _disconnected(request), state.live.stopping.wait)
    try:
        async with contextlib.aclosing(running) as found:
            async for piece in found:
                yield frame(*piece)
    except Interrupted:
        return
    except Exception as error:  # the response has begun, so the error can only be its last frame
        yield error_frame(error)


async def _disconnected(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
