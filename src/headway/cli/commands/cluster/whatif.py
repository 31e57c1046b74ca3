"""whatif: replays a queue through the real slurmctld, with a changed cluster, on the server's machine or on this one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import Refused
from headway.parallel_tasks import run_all

if TYPE_CHECKING:
    from headway.domain.cluster import Cluster
    from headway.schemas.whatif import ReplayFiguresOut, WhatIfOut
    from headway.whatif.changes import Changes
    from headway.whatif.outcome import Outcome
    from headway.whatif.trace import Trace

_MOST_BYTES = 500_000_000
_OWNER = "owner"  # the person who would apply a file: one more user, without jobs


def whatif(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER|FILE", help="A cluster, or a cluster file.")],
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", metavar="[GROUP=]NUMBER", help="Number of nodes: +4, -2 or 12.")
    ] = None,
    cap: Annotated[
        list[str] | None,
        typer.Option("--cap", metavar="TEAM=GPUS", help="Most GPUs that a team has at once; none: no limit."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="YAML with fields that replace those of the cluster file; null removes one.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Jobs: output of sacct -a -X -P, or SWF (default: the cluster's accounting).",
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Begin of the jobs, as sacct --starttime.")
    ] = "now-1days",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="End of the jobs, as sacct --endtime.")] = "now",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be replayed.")] = False,
    output: Output = Format.table,
) -> None:
    """Replay yesterday's queue with more nodes, other caps or another policy.

    The jobs run through the real slurmctld with the configuration that the cluster file gives, in a container, in virtual time:
    for a cluster on the server's machine, which stores the result; for a cluster file or with --trace on this machine. Waits by
    team and size, utilisation and price are shown next to those of the present cluster.

    headway whatif lab --nodes +4
    headway whatif lab --cap vision=16 --since 2026-11-20 --until 2026-11-21
    headway whatif cluster.yaml --trace jobs.txt --policy policy.yaml"""
    from headway.schemas.whatif import WhatIfIn
    from headway.whatif.changes import Changes

    changes = Changes(tuple(nodes or ()), tuple(cap or ()), _policy(policy))
    if _is_file(cluster) or trace is not None or dry_run:
        found = _replay_here(cluster, changes, trace, since, until, dry_run=dry_run, quiet=output is Format.json)
        if found is None:
            return
    else:
        api = common.connect()
        name = common.require_cluster_name(cluster)
        request = WhatIfIn(
            nodes=list(changes.nodes), caps=list(changes.caps), policy=dict(changes.policy), since=since, until=until
        )
        operation = follow_operation(api, api.clusters.whatif(name, request), quiet=output is Format.json)
        found = api.clusters.whatif_result(name, operation.id)
    if output is Format.json:
        print_json(found)
        return
    _print_answer(found)


def _replay_here(
    cluster: str, changes: Changes, trace: Path | None, since: str, until: str, *, dry_run: bool, quiet: bool
) -> WhatIfOut | None:
    """Replays on this machine. None for a dry run, which prints only the jobs."""
    from headway.whatif.changes import changed_file
    from headway.whatif.comparison import compare_replays

    spec, catalogue, owner = _cluster_file(cluster)
    present = _resolved(spec, catalogue, owner)
    changed = _resolved(changed_file(spec, present, changes), catalogue, owner) if changes else None
    jobs = _trace(present, trace, since, until, stored=not _is_file(cluster))
    if dry_run or not quiet:
        _print_trace(jobs, dry_run=dry_run)
    if dry_run:
        return None
    outcomes = _replay(jobs, present, changed)
    replays = [("present", present, outcomes[0]), *([("changed", changed, outcomes[1])] if changed else [])]
    found = compare_replays(jobs, replays)
    return found.model_copy(update={"cluster": present.name, "changes": changes.in_words})


def _is_file(cluster: str) -> bool:
    return "/" in cluster or cluster.endswith((".yaml", ".yml"))


def _cluster_file(cluster: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Returns the loaded cluster file, its catalogue and owner, from a file or from the server."""
    if _is_file(cluster):
        from headway.sdk.cluster_file import load_document

        document = load_document(common.expand_home(cluster))
    else:
        document = common.connect().clusters.document(common.require_cluster_name(cluster))
    return document.spec, document.catalogue, document.owner or _OWNER


def _resolved(spec: Mapping[str, Any], catalogue: Mapping[str, Any], owner: str) -> Cluster:
    from headway.catalog.plans import load_catalogue
    from headway.clusterfile.load import resolve_cluster_file

    return resolve_cluster_file(spec, load_catalogue(catalogue), owner=owner)[0]


def _policy(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from headway.sdk.cluster_file import read_text_file
    from headway.validation.yaml_parser import parse_yaml

    return parse_yaml(read_text_file(common.expand_home(file), "a file of fields"), str(file))


def _trace(cluster: Cluster, file: Path | None, since: str, until: str, *, stored: bool) -> Trace:
    """Returns the checked jobs of the file, or of the accounting of a running cluster."""
    from headway.whatif.sacct_trace import is_sacct, read_sacct
    from headway.whatif.swf_trace import read_swf
    from headway.whatif.trace import check_trace

    if file is None:
        if not stored:
            raise Refused("a cluster file has no jobs", hint="give --trace FILE, or the name of a running cluster")
        found, left_out = read_sacct(_accounting(cluster.name, since, until), time.time())
        return check_trace(found, cluster, left_out)
    path = common.expand_home(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Refused(f"{path} has more than {_MOST_BYTES // 1_000_000} MB", hint="give a shorter time")
        text = path.read_text(errors="replace")
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}", hint="name a file with jobs") from None
    if is_sacct(text):
        found, left_out = read_sacct(text, path.stat().st_mtime)
    elif text.lstrip()[:1] == ";" or text[:1].isdigit() or text[:1] == " ":
        found, left_out = read_swf(text, cluster)
    else:
        from headway.whatif.sacct_trace import COLUMNS

        raise Refused(
            f"{path} is neither SWF nor the output of sacct with its line of names",
            hint=f"sacct -a -X -P -o {','.join(COLUMNS)} > jobs.txt",
        )
    return check_trace(found, cluster, left_out)


def _accounting(cluster: str, since: str, until: str) -> str:
    """Returns the output of sacct on the head, for jobs of all users."""
    from headway.whatif.sacct_trace import trace_argv

    said = {"out": b"", "err": b""}
    for kind, data in common.connect().commands.stream(cluster, trace_argv(since, until), "root"):
        if kind == "code" and int(data):
            raise Refused(
                f"sacct failed: {said['err'].decode(errors='replace').strip()}", hint="see --since and --until"
            )
        if kind in said:
            said[kind] += data
    return said["out"].decode(errors="replace")


def _print_trace(trace: Trace, *, dry_run: bool) -> None:
    show = common.print_line if dry_run else common.print_note
    hours = (trace.last - trace.first) / 3600
    show(
        f"{formatting.plural(len(trace.jobs), 'job')} of {hours:.1f} hours" + (" would be replayed" if dry_run else "")
    )
    for why, number in trace.left_out.most_common():
        show(f"  left out: {number:,}: {why}")
    for warning in trace.warnings:
        show(f"  warning: {warning}")


def _replay(trace: Trace, present: Cluster, changed: Cluster | None) -> list[Outcome]:
    """Runs the replays at the same time and returns their outcomes."""
    from headway.whatif.container import Progress, run_replay

    began, told = time.monotonic(), {"at": 0.0}

    def report(name: str, progress: Progress) -> None:
        if time.monotonic() - told["at"] >= 2:
            told["at"] = time.monotonic()
            common.print_note(
                f"{time.monotonic() - began:7.1f}s  {name}: hour {progress.virtual_s / 3600:.1f}, "
                f"{progress.started:,} of {len(trace.jobs):,} jobs started"
            )

    async def run() -> list[Outcome]:
        named = [("present", present), *([("changed", changed)] if changed else [])]
        return await run_all(
            run_replay(cluster, trace, lambda progress, name=name: report(name, progress)) for name, cluster in named
        )

    return asyncio.run(run())


def _print_answer(answer: WhatIfOut) -> None:
    columns = {"real": "AS IT WAS", "present": "REPLAYED", "changed": "CHANGED"}
    figures = answer.figures
    keys = list(dict.fromkeys((row.team, row.size) for one in figures.values() for row in one.waits))
    heads = [tables.Column("TEAM"), tables.Column("SIZE")]
    heads += [tables.Column(f"{columns[name]} median, p90 wait", right=True) for name in figures]
    rows = []
    for team, size in keys:
        row = [team, size]
        for one in figures.values():
            waits = next((w for w in one.waits if (w.team, w.size) == (team, size)), None)
            row.append(f"{_time(waits.median_s)}, {_time(waits.p90_s)}" if waits else "-")
        rows.append(row)
    tables.print_table(heads, rows)
    common.print_line()
    facts = [tables.Column("")] + [tables.Column(columns[name], right=True) for name in figures]
    tables.print_table(facts, _fact_rows(list(figures.values())))
    for name, kinds in (("can never start", answer.never_started), ("refused", answer.refused)):
        for where, reasons in kinds.items():
            for why, jobs in reasons.items():
                more = " ..." if len(jobs) > 5 else ""
                common.print_note(
                    f"{columns[where]}: {formatting.plural(len(jobs), 'job')} {name}: {why}: {', '.join(jobs[:5])}{more}"
                )


def _fact_rows(found: Sequence[ReplayFiguresOut]) -> list[list[str]]:
    def row(title: str, values: Iterable[float | None], text: Callable[[float], str]) -> list[str]:
        return [title, *("-" if value is None else text(value) for value in values)]

    return [
        row("utilisation", (one.utilisation for one in found), lambda value: f"{100 * value:.1f} %"),
        row(
            "free on nodes with jobs, while jobs wait",
            (one.fragmentation for one in found),
            lambda value: f"{100 * value:.1f} %",
        ),
        row("all jobs ended after", (one.last_end_s for one in found), _time),
        row("price of the nodes", (one.usd for one in found), lambda value: f"${value:,.0f}"),
        row("price of a GPU-hour in use", (one.usd_per_gpu_hour for one in found), lambda value: f"${value:,.2f}"),
    ]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
