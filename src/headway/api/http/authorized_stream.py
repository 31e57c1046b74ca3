"""Responses that run for long (a followed log, a command, events). They end when their person loses the right to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fastapi import Request

from headway.api.auth.dependencies import require_right
from headway.errors import HeadwayError, NotAllowed, NotSignedIn, TooManyTries
from headway.services.access.role_rights import Principal, Right
from headway.services.interruptible_stream import Interrupted, pieces_until

RECHECK_S = 5.0  # the right is checked this often
T = TypeVar("T")
Check = Callable[[Principal], Awaitable[object]]


async def stream_while_allowed(
    request: Request,
    pieces: AsyncIterator[T],
    right: Right,
    check: Check | None = None,
    last_piece: Callable[[str], T] | None = None,
) -> AsyncGenerator[T, None]:
    """Yields the pieces as long as the request's person has the right. `check` raises NotAllowed if more than the right
    is needed. `last_piece` makes the last piece, which explains why the stream ended."""
    try:
        allowed = pieces_until(pieces, lambda: _wait_until_not_allowed(request, right, check))
        async with contextlib.aclosing(allowed) as found:
            async for piece in found:
                yield piece
    except Interrupted as error:
        if last_piece is not None:
            yield last_piece(error.result)


async def _wait_until_not_allowed(request: Request, right: Right, check: Check | None) -> str:
    """Waits until the person loses the right, and returns why."""
    while True:
        await asyncio.sleep(RECHECK_S)
        try:
            who = await require_right(right, any_cluster=True)(request)
            if check is not None:
                await check(who)
        except (NotSignedIn, NotAllowed, TooManyTries) as error:
            return error.message
        except HeadwayError:
            continue  # the database or the cluster does not answer at the moment
