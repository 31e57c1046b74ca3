"""Downloads from public servers, with limits of time and size."""

from __future__ import annotations

import asyncio

from headway.errors import Unreachable

_PART = 64 * 1024


async def download(url: str, *, timeout_s: float, most_bytes: int) -> bytes:
    """Returns what a GET request of the URL answers; redirects are not followed. Raises Unreachable, also for an answer that
    is not 200, that takes longer, or that is larger."""
    import httpx

    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(timeout=timeout_s) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise Unreachable(f"{url} answers {answer.status_code} {answer.reason_phrase}")
            content = bytearray()
            async for part in answer.aiter_bytes(_PART):
                content += part
                if len(content) > most_bytes:
                    raise Unreachable(f"{url} sends more than {most_bytes:,} bytes")
            return bytes(content)
    except TimeoutError:
        raise Unreachable(f"{url} did not answer completely within {timeout_s:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(f"{url} can't be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
