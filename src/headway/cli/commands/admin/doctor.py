"""doctor: what this machine lacks, all at once."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from headway.cli import session, tables
from headway.cli.session import Format, Output

# The quickstart cluster: a head, four nodes and a spare, and the building of their image.
NEED_MIB = 2000
NEED_DISK_MIB = 9000


def doctor(output: Output = Format.table) -> None:
    """What this machine lacks to run local clusters, and how to get it. Exits with 1 when something is missing."""
    import asyncio

    from headway.images.podman import podman_problem
    from headway.providers.local.preflight import host_gaps

    gaps = [*host_gaps(need_mib=NEED_MIB, need_disk_mib=NEED_DISK_MIB), *asyncio.run(podman_problem())]
    if output is Format.json:
        session.say(json.dumps([asdict(gap) for gap in gaps], indent=2))
    else:
        on = tables.screen()
        for gap in gaps:
            word = tables.paint("FAIL", "bad", on) if gap.fatal else tables.paint("warn", "warn", on)
            session.say(f"{word}  {tables.clean(gap.what)}")
            if gap.fix:
                session.say(f"      {gap.fix}")
        if not gaps:
            session.say(f"{tables.paint('ok', 'good', on)}    this machine has what local clusters need")
    if any(gap.fatal for gap in gaps):
        raise typer.Exit(1)
