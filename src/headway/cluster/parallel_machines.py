"""Reports which machines failed when work runs on several of them in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from headway.changes.cluster_changes import DesiredState
from headway.errors import HeadwayError, Refused


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
