"""Runs work on several machines in parallel and reports those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any

from headway.changes.cluster_changes import DesiredState
from headway.errors import HeadwayError, Refused


async def run_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all coroutines and waits until they have ended. An exception cancels the others and is raised once they have
    stopped."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def failed_machines_error(failures: dict[str, HeadwayError], goal: DesiredState) -> Refused:
    """Returns the error that lists every machine that failed."""
    lines = []
    for name, error in sorted(failures.items()):
        lines.append(f"  {error.message if name in error.message else f'{name}: {error.message}'}")
        lines += [f"    {error.hint}"] if error.hint else []
    return Refused(
        f"{len(failures)} of {len(goal.machines)} machines failed:\n" + "\n".join(lines),
        hint="the other machines are done; correct the errors above and run apply again",
    )


async def errors_of_all(works: Iterable[Awaitable[None]]) -> list[HeadwayError]:
    """Runs everything to its end, and returns the errors of what failed. Raises any other exception."""
    done = await asyncio.gather(*works, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException) and not isinstance(result, HeadwayError):
            raise result
    return [result for result in done if isinstance(result, HeadwayError)]
