"""Responses that run for long (a followed log, a command, events). They end when their person loses the right to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request

from headway.api.auth.dependencies import require_right
from headway.errors import HeadwayError, NotAllowed, NotSignedIn, TooManyTries
from headway.services.identity import Principal, Right

RECHECK_S = 5.0  # the right is checked this often
T = TypeVar("T")
Check = Callable[[Principal], Awaitable[object]]


async def stream_while_allowed(
    request: Request,
    pieces: AsyncIterator[T],
    right: Right,
    check: Check | None = None,
    say: Callable[[str], T] | None = None,
) -> AsyncGenerator[T, None]:
    """Yields the pieces as long as the request's person has the right. `check` raises NotAllowed if more than the right
    is needed. `say` makes the last piece, which explains why the stream ended."""
    gone = asyncio.ensure_future(_wait_until_not_allowed(request, right, check))
    following: asyncio.Future[Any] = gone
    end = object()
    try:
        while True:
            following = asyncio.ensure_future(anext(pieces, end))
            await asyncio.wait({gone, following}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                if say is not None:
                    yield say(gone.result())
                return
            piece = following.result()
            if piece is end:
                return
            yield piece
    finally:
        for task in (gone, following):
            task.cancel()
        await asyncio.gather(gone, following, return_exceptions=True)
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


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
