"""doctor: what this machine lacks, all at once."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import asdict

import typer

from headway.cli import session, show
from headway.cli.session import Format, Output


def doctor(output: Output = Format.table) -> None:
    """What this machine lacks to run local clusters, and how to get it. Exits with 1 when something is missing."""
    from headway.machines.preflight import host_gaps

    found = host_gaps()
    gaps = asyncio.run(found) if inspect.isawaitable(found) else found
    if output is Format.json:
        session.say(json.dumps([asdict(gap) for gap in gaps], indent=2))
    else:
        on = show.screen()
        for gap in gaps:
            word = show.paint("FAIL", "bad", on) if gap.fatal else show.paint("warn", "warn", on)
            session.say(f"{word}  {show.clean(gap.what)}")
            if gap.fix:
                session.say(f"      {gap.fix}")
        if not gaps:
            session.say(f"{show.paint('ok', 'good', on)}    this machine has what local clusters need")
    if any(gap.fatal for gap in gaps):
        raise typer.Exit(1)
