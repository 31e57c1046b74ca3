"""rehearse: submits a site's last jobs to the rehearsal of its cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.commands.cluster.compare_site import cluster_state
from headway.cli.commands.cluster.site_source import read_site_files
from headway.cli.output import tables
from headway.cli.output.formatting import plural
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import NotFound, Refused, Unreachable

if TYPE_CHECKING:
    from headway.slurm_import.importer import SiteFiles
    from headway.slurm_import.replay.outcome import Outcome
    from headway.slurm_import.replay.submissions import Capacity, Replay

_MOST_NAMED = 3
_PIECE = 64 * 1024


def rehearse(
    cluster: Annotated[
        str, typer.Argument(help="Cluster in local containers, made of rehearsal.yaml.", autocompletion=common.complete_cluster)
    ],
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="Folder with slurm.conf and sacct.txt, or the head: ssh://[USER@]HEAD[:PORT]."),
    ],
    days: Annotated[int, typer.Option("--days", min=1, max=31, help="Days of accounting to read from a head.")] = 1,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, max=720, help="Time in which the jobs are submitted.")
    ] = 10,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Submit the last jobs of a Slurm site to the rehearsal of its cluster.

    Read at most 10,000 jobs from the site's accounting. Submit them as their users, with their partitions, accounts, time
    limits and resources, in less time; the jobs sleep. Print which ones Slurm refuses, which limits hold jobs back, and how
    long jobs wait there and here. The exit status is 1 if a job is refused.

    headway import --from ssh://root@slurm-head --to helix --rehearse
    headway apply helix/rehearsal.yaml
    headway rehearse helix --from ssh://root@slurm-head"""
    from headway.catalog.providers import PROVIDERS
    from headway.slurm_import.replay.accounted_jobs import read_jobs
    from headway.slurm_import.replay.outcome import read_outcome
    from headway.slurm_import.replay.submissions import plan_replay

    name = common.require_cluster_name(cluster)
    if not PROVIDERS[common.connect().clusters.get(name).provider].simulates_hardware:
        raise Refused(
            f"{name} is no rehearsal: its machines are not containers here", hint="apply rehearsal.yaml first"
        )
    files = read_site_files(source)
    jobs, odd = read_jobs(_accounting(source, files, days))
    replay = plan_replay(jobs, _capacity(files, name), minutes * 60)
    if output is Format.table:
        common.print_line(
            f"read {plural(len(jobs), 'job')}; submitting {len(replay.submissions):,} in {minutes:g} min, {replay.factor:.0f} "
            "times as fast"
        )
    outcome = read_outcome(replay, list(_carried_out(name, replay, minutes * 60)))
    if output is Format.json:
        print_json(_data(replay, outcome, odd))
    else:
        _print(replay, outcome, odd)
    if outcome.refused:
        raise typer.Exit(1)


def _accounting(source: str, files: SiteFiles, days: int) -> str:
    from headway.sdk.slurm_site.head import SCHEME, read_jobs_of_head
    from headway.slurm_import.importer import STATE_JOBS

    if source.startswith(SCHEME):
        return read_jobs_of_head(source, days)
    if STATE_JOBS not in files.texts:
        raise NotFound(f"{source} has no {STATE_JOBS}", hint="see docs/howto/import.md for the command that writes it")
    return files.texts[STATE_JOBS]


def _capacity(files: SiteFiles, cluster: str) -> Capacity:
    from headway.slurm_import.comparison.verdict_reasons import find_reasons
    from headway.slurm_import.importer import import_site
    from headway.slurm_import.replay.submissions import Capacity

    imported, there = import_site(files), cluster_state(cluster)
    groups = {name: group["nodes"] for name, group in imported.spec["groups"].items()}
    parts = imported.spec.get("partitions", {})
    reasons = find_reasons(imported)
    return Capacity(
        site_nodes={name: sum(groups[g] for g in part.get("groups", groups)) for name, part in parts.items()},
        nodes={n: int(pairs.get("TotalNodes", "0")) for n, pairs in there.partitions.items() if n in parts},
        partitions=reasons.partitions,
        teams=reasons.teams,
        users=frozenset(user for _, user in there.associations if user),
    )


def _carried_out(cluster: str, replay: Replay, seconds: float) -> Iterator[dict[str, Any]]:
    """Submits the jobs on the head, and yields the result of each."""
    from headway.paths import node_dir
    from headway.slurm_import.replay.submissions import JOB_NAME

    jobs = [{"at": s.at_s, "user": s.user, "argv": s.argv, "sleep": s.sleep_s} for s in replay.submissions]
    plan = json.dumps({"name": JOB_NAME, "jobs": jobs, "patience": seconds})
    program = (node_dir() / "programs" / "replay_jobs.py").read_text() + f"\n\nreplay({plan!r})\n"
    said, err = b"", b""
    for kind, data in common.connect().commands.stream(cluster, ["python3", "-"], "root", _pieces(program.encode())):
        if kind == "code" and int(data):
            raise Unreachable(
                f"the replay ended early: {err.decode(errors='replace')[-300:]}", hint=f"headway status {cluster}"
            )
        err += data if kind == "err" else b""
        said += data if kind == "out" else b""
        *lines, said = said.split(b"\n")
        yield from map(json.loads, lines)


def _pieces(text: bytes) -> Callable[[], bytes]:
    """Returns a function that returns the next piece of a text, and b"" at its end."""
    pieces = iter([text[start : start + _PIECE] for start in range(0, len(text), _PIECE)])
    return lambda: next(pieces, b"")


def _data(replay: Replay, outcome: Outcome, odd: int) -> dict[str, Any]:
    return {
        "read": replay.read, "unreadable_lines": odd, "submitted": len(replay.submissions), "factor": replay.factor,
        "left_out": dict(replay.left_out), "refused": outcome.refused, "held_by_limits": outcome.limited,
        "partitions": {
            name: {
                "submitted": one.submitted, "refused": one.refused, "started": one.started,
                "site_waits_s": one.site_waits_s, "waits_s": one.waits_s,
            }
            for name, one in outcome.partitions.items()
        },
    }  # fmt: skip


def _print(replay: Replay, outcome: Outcome, odd: int) -> None:
    from headway.slurm_import.replay.outcome import median

    columns = [tables.Column("PARTITION"), *(tables.Column(title, right=True) for title in
               ("ACCEPTED", "REFUSED", "STARTED", "WAIT AT SITE", "MOST", "WAIT HERE", "MOST HERE"))]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [name, str(one.submitted), (str(one.refused), "bad" if one.refused else ""), str(one.started),
         _time(median(one.site_waits_s)), _time(max(one.site_waits_s, default=None)),
         _time(median(one.waits_s)), _time(max(one.waits_s, default=None))]
        for name, one in sorted(outcome.partitions.items())
    ]  # fmt: skip
    if rows:
        common.print_line()
        tables.print_table(columns, rows)
        common.print_line(
            f"waits are medians in the site's time; one second of the replay is {replay.factor:.0f} s there"
        )
    for title, found in (("refused by Slurm", outcome.refused), ("held back by a limit", outcome.limited)):
        for why, jobs in sorted(found.items(), key=lambda row: -len(row[1])):
            more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
            common.print_line(f"{title}: {why}: {plural(len(jobs), 'job')}: {', '.join(jobs[:_MOST_NAMED])}{more}")
    left_out = Counter(replay.left_out)
    left_out["the line of accounting could not be read"] += odd
    for why, count in left_out.most_common():
        common.print_line(f"not replayed: {count:,}: {why}") if count else None


def _time(seconds: float | None) -> str:
    """Returns hours, minutes and seconds; "-" for none."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
