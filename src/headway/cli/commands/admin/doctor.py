"""doctor: lists everything that this machine lacks for Headway."""

from __future__ import annotations

import typer

from headway.cli import common
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import detect_terminal, paint, without_control_characters

# The quickstart cluster: a head, four nodes and a spare, and the building of their image.
NEED_MIB = 2000
NEED_DISK_MIB = 9000


def doctor(output: Output = Format.table) -> None:
    """Check whether this machine can run local clusters, and print what to install. Exits with 1 when something is missing."""
    import asyncio

    from headway.images.podman import podman_problem
    from headway.providers.local.preflight import host_problems

    problems = [*host_problems(need_mib=NEED_MIB, need_disk_mib=NEED_DISK_MIB), *asyncio.run(podman_problem())]
    if output is Format.json:
        print_json(problems)
    else:
        terminal = detect_terminal()
        for problem in problems:
            word = paint("FAIL", "bad", terminal) if problem.fatal else paint("warn", "warn", terminal)
            common.print_line(f"{word}  {without_control_characters(problem.what)}")
            if problem.fix:
                common.print_line(f"      {problem.fix}")
        if not problems:
            common.print_line(f"{paint('ok', 'good', terminal)}    this machine can run local clusters")
    if any(problem.fatal for problem in problems):
        raise typer.Exit(1)
