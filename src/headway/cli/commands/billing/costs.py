"""usage, invoice, chargeback, goodput, budgets, energy, capacity: what was used, what it cost, how much of it trained."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import formatting, session, tables
from headway.cli.session import ClusterName, Format, Output
from headway.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headway.schemas.billing import BudgetOut, EstimateOut, NodeStatesOut, PartsOut, UsageRow
    from headway.sdk.resources.billing import RunFilters


class Sheet(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


SheetOutput = Annotated[
    Sheet, typer.Option("-o", "--output", help="Output format: table, json or csv.", show_default=False)
]
Month = Annotated[str, typer.Option("--period", "-p", metavar="YYYY-MM", help="Month (default: the current one).")]
_NODE_STATE_STYLE = {"down": "bad", "drained": "warn", "spare": "dim", "off": "dim"}
_LEVEL = {"ok": "good", "warn": "warn", "over": "bad"}


def usage(
    cluster: ClusterName = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="FIELDS", help="Group by team, user, partition, gpu or group; separate several with commas."
        ),
    ] = "team",
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Start: month, date or ISO 8601 time (default: start of this month)."
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="End, exclusive: month, date or ISO 8601 time (default: now).")
    ] = "",
    team: Annotated[str, typer.Option("--team", help="Only this team.")] = "",
    user: Annotated[str, typer.Option("--user", help="Only this user.")] = "",
    partition: Annotated[str, typer.Option("--partition", help="Only this partition.")] = "",
    gpu: Annotated[str, typer.Option("--gpu", help="Only this GPU type; - for runs without GPUs.")] = "",
    group: Annotated[str, typer.Option("--group", help="Only this node group.")] = "",
    runs: Annotated[bool, typer.Option("--runs", help="List the runs instead of sums.")] = False,
    cause: Annotated[
        str, typer.Option("--cause", help="List the runs with this cause of loss, as headway goodput prints it.")
    ] = "",
    job: Annotated[int, typer.Option("--job", help="List the runs of one job instead of sums.")] = 0,
    nodes: Annotated[bool, typer.Option("--nodes", help="List node states over time instead of sums.")] = False,
    output: SheetOutput = Sheet.table,
) -> None:
    """Report the GPU time of jobs, from Slurm's accounting.

    headway usage --by team,user --from 2026-10 --to 2026-11
    headway usage --runs --team vision -o csv"""
    which: RunFilters = {"team": team, "user": user, "partition": partition, "gpu": gpu, "group": group}
    if nodes:
        of_runs = {**which, "group": "", "cause": cause, "job": job, "runs": runs}
        _require_unset(of_runs, "--nodes", "node states are selected by --group, --from and --to")
    if nodes or runs or job or cause:
        _require_unset({"by": by != "team"}, "--nodes" if nodes else "--runs, --job and --cause", "it applies to sums")
    api = session.connect()
    name = session.choose_cluster(api, cluster)
    if nodes:
        _nodes(
            _pages(
                lambda cursor: api.billing.node_states(name, start=start, end=end, group=group, cursor=cursor), "states"
            ),
            output,
        )
        return
    if runs or job or cause:
        _runs(
            _pages(
                lambda at: api.billing.usage_runs(name, job=job, cause=cause, start=start, end=end, **which, cursor=at),
                "runs",
            ),
            output,
        )
        return
    found = api.billing.usage(name, by=by.split(","), start=start, end=end, **which)
    if found.stale:
        session.print_note(f"accounting can't be read now, the data is old: {found.stale}")
    if _print_for_programs(found, output):
        return
    if not found.rows:
        session.print_line(
            f"nothing ran on {name} from {formatting.local_time(found.start)} to {formatting.local_time(found.end)}"
        )
        return
    columns = [
        *(tables.Column(word.upper(), shrink=True) for word in found.rows[0].by),
        tables.Column("RUNS", right=True),
        tables.Column("GPU-HOURS", right=True),
        tables.Column("LOST", right=True, drop_order=2),
        tables.Column("IDLE", right=True, drop_order=2),
        tables.Column("WAITED H", right=True, drop_order=3),
        tables.Column("KWH", right=True, drop_order=4),
        tables.Column("USD", right=True),
    ]
    rows = [_usage_cells(row, list(row.by.values())) for row in found.rows]
    blank = ["" for _ in found.rows[0].by][1:]
    rows.append(_usage_cells(found.total, ["all", *blank]))
    _table(columns, rows)
    if any(row.energy_estimated for row in found.rows):
        session.print_note("~ energy is partly estimated, not measured")
    if found.simulated:
        session.print_note(formatting.SIMULATED_NOTE)


def _require_unset(given: Mapping[str, object], other: str, why: str) -> None:
    """Raises BadParameter for an option that would have no effect."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"--{name} can't be combined with {other}: {why}")


def _usage_cells(row: UsageRow, names: Sequence[str]) -> list[tables.Cell]:
    kwh = f"{'~' if row.energy_estimated else ''}{row.energy_kwh:,.1f}"
    figures = (row.gpu_hours, row.lost_gpu_hours, row.idle_gpu_hours, row.waited_hours)
    return [*(name or "-" for name in names), f"{row.runs:,}", *(f"{one:,.2f}" for one in figures), kwh, _usd(row.usd)]


def _pages(ask: Callable[[str], Any], field: str) -> Any:
    """Returns all pages of an answer as one."""
    found = ask("")
    while found.next:
        more = ask(found.next)
        rows = [*getattr(found, field), *getattr(more, field)]
        found = found.model_copy(update={field: rows, "next": more.next})
    return found


def _nodes(found: NodeStatesOut, output: Sheet) -> None:
    if _print_for_programs(found, output):
        return
    columns = [
        tables.Column("NODE"), tables.Column("STATE"), tables.Column("FROM"), tables.Column("LASTED", right=True),
        tables.Column("REASON", shrink=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            one.node, (one.state, _NODE_STATE_STYLE.get(one.state, "")), formatting.local_time(one.start),
            formatting.duration(one.seconds) + ("" if one.end else "+"), one.reason,
        ]
        for one in found.states
    ]  # fmt: skip
    _table(columns, rows)


def _runs(found: Any, output: Sheet) -> None:
    if _print_for_programs(found, output):
        return
    columns = [
        tables.Column("JOB", right=True),
        tables.Column("USER", shrink=True, drop_order=3),
        tables.Column("STATE"),
        tables.Column("BEGAN"),
        tables.Column("HELD", right=True),
        tables.Column("WAITED", right=True),
        tables.Column("LOST", right=True),
        tables.Column("IDLE", right=True),
        tables.Column("GPUS", right=True),
        tables.Column("NODES", shrink=True),
        tables.Column("KWH", right=True, drop_order=4),
        tables.Column("USD", right=True),
    ]
    rows: list[list[tables.Cell]] = [
        [
            str(one.job), one.user, one.state, formatting.local_time(one.start), formatting.duration(one.held_s),
            formatting.duration(one.waited_s), formatting.duration(one.lost_s) if one.lost_s else "",
            formatting.duration(one.idle_s) if one.idle_s else "", str(one.gpus), one.nodes,
            f"{'~' if one.energy_estimated else ''}{one.energy_kwh:,.2f}", "" if one.usd is None else _usd(one.usd),
        ]
        for one in found.runs
    ]  # fmt: skip
    if not rows:
        session.print_line("no matching run")
    _table(columns, rows)


def invoice(
    cluster: ClusterName = None,
    period: Month = "",
    close: Annotated[
        bool, typer.Option("--close", help="Close the month permanently after its end (admins only).")
    ] = False,
    output: SheetOutput = Sheet.table,
) -> None:
    """Show a month's invoice: machines billed by the second, spares listed separately.

    headway invoice lab --period 2026-10 --close"""
    api = session.connect()
    name = session.choose_cluster(api, cluster)
    if close and not period:
        raise Refused("give the month to close", hint="headway invoice --period 2026-10 --close")
    found = api.billing.close_invoice(name, period) if close else api.billing.invoice(name, period)
    if _print_for_programs(found, output):
        return
    state = (
        f"closed as invoice {found.number}"
        if found.state == "closed"
        else f"open, until {formatting.local_time(found.as_of)}"
    )
    session.print_line(f"{name} {found.period} ({found.timezone}): {state}")
    columns = [
        tables.Column("WHAT"), tables.Column("GROUP"), tables.Column("BILLING"), tables.Column("HOURS", right=True),
        tables.Column("USD AN HOUR", right=True), tables.Column("USD", right=True), tables.Column("OF"),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [line.what, line.group, line.billing, f"{line.hours:,.4f}", f"{line.usd_per_hour:,.4f}", _usd(line.amount_usd), line.of]
        for line in found.lines
    ]  # fmt: skip
    rows.append(["total", "", "", "", "", (_usd(found.total_usd), "bold"), ""])
    _table(columns, rows)


def chargeback(cluster: ClusterName = None, period: Month = "", output: SheetOutput = Sheet.table) -> None:
    """Split a month's invoice among teams, to the cent.

    headway chargeback lab --period 2026-10 -o json"""
    api = session.connect()
    found = api.billing.chargeback(session.choose_cluster(api, cluster), period)
    if _print_for_programs(found, output):
        return
    fields = ("productive_usd", "lost_usd", "held_idle_usd", "idle_usd", "spare_usd", "broken_usd", "total_usd")
    columns = [
        tables.Column("TEAM", shrink=True),
        *(tables.Column(field.removesuffix("_usd").replace("_", " ").upper(), right=True) for field in fields),
    ]
    rows: list[list[tables.Cell]] = [
        [one.team or "no team", *(_usd(getattr(one, field)) for field in fields)] for one in found.teams
    ]
    rows += [
        [(f"({one.what}{', ' + one.centre if one.centre else ''})", "dim"), *[""] * 6, _usd(one.usd)]
        for one in found.unassigned
    ]
    if found.invoice_total_usd is not None:
        rows.append(["invoice", *[""] * 6, (_usd(found.invoice_total_usd), "bold")])
    _table(columns, rows)
    if found.state == "open":
        session.print_note(f"{found.period} is open: these figures may still change")


def goodput(
    cluster: ClusterName = None,
    period: Month = "",
    job: Annotated[int, typer.Option("--job", help="Report one job, over all its runs, instead of a month.")] = 0,
    output: Output = Format.table,
) -> None:
    """Report the productive share of the GPU time of jobs, and the causes of loss.

    headway goodput --job 104"""
    if job:
        _require_unset({"period": period}, "--job", "--job reports all runs of a job")
    api = session.connect()
    if job:
        told = api.billing.job_goodput(session.choose_cluster(api, cluster), job)
        if not _print_for_programs(told, output):
            _parts("JOB", [(f"{job} ({told.user}), {told.runs} run{'s' * (told.runs != 1)}", told.total)])
        return
    found = api.billing.goodput(session.choose_cluster(api, cluster), period)
    if _print_for_programs(found, output):
        return
    _parts("TEAM", [*((one.team or "no team", one) for one in found.teams), ("all", found.total)])
    if found.causes:
        session.print_line()
    columns = [
        tables.Column("USD", right=True),
        tables.Column("GPU-HOURS", right=True),
        tables.Column("WHAT", shrink=True, min_width=24),
        tables.Column("JOBS", shrink=True, drop_order=1),
    ]
    rows = [
        [_usd(one.usd), f"{one.gpu_hours:,.2f}", one.what, " ".join(str(job) for job in one.jobs)]
        for one in found.causes
    ]
    _table(columns, rows)
    better = [one for one in found.checkpoints if one.saves_usd]
    if better:
        session.print_line()
    columns = [
        tables.Column(word, right=True) for word in ("JOB", "SAVES FOR", "EVERY", "BETTER EVERY", "WOULD SAVE USD")
    ]
    rows = [
        [
            str(one.job),
            f"{one.write_s:.1f} s",
            formatting.duration(one.now_s),
            formatting.duration(one.best_s),
            _usd(one.saves_usd),
        ]
        for one in better
    ]
    _table(columns, rows)


def _parts(what: str, of: Iterable[tuple[str, PartsOut]]) -> None:
    """Prints a table of GPU-hours."""
    words = ("PRODUCTIVE", "LOST", "IDLE", "WAITED", "GOODPUT", "ETTR")
    columns = [tables.Column(what, shrink=True), *(tables.Column(word, right=True) for word in words)]
    rows: list[list[tables.Cell]] = [
        [
            name, f"{one.productive_gpu_hours:,.2f}", f"{one.lost_gpu_hours:,.2f}", f"{one.idle_gpu_hours:,.2f}",
            f"{one.waited_gpu_hours:,.2f}", _share(one.goodput), _share(one.ettr),
        ]
        for name, one in of
    ]  # fmt: skip
    _table(columns, rows)


def budgets(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """Show the budgets of teams: limit, used, left."""
    api = session.connect()
    name = session.choose_cluster(api, cluster)
    found = api.billing.budgets(name)
    if _print_for_programs(found, output):
        return
    if not found:
        session.print_line(f"no visible team of {name} has a budget; set teams.NAME.budget in its file")
        return
    columns = [
        tables.Column("TEAM"),
        tables.Column("USED", right=True),
        tables.Column("OF", right=True),
        tables.Column("LEFT", right=True),
        tables.Column("UNIT"),
        tables.Column("PER"),
        tables.Column("UNTIL", drop_order=1),
        tables.Column("STATE"),
    ]
    rows: list[list[tables.Cell]] = [
        [
            one.team, f"{one.used:,.2f}", f"{one.limit:,.2f}", f"{one.left:,.2f}", one.unit, one.per,
            formatting.local_time(one.end), (_state(one), _LEVEL[one.level]),
        ]
        for one in found
    ]  # fmt: skip
    _table(columns, rows)


def _state(one: BudgetOut) -> str:
    return "jobs are held" if one.held_back else {"ok": "ok", "warn": "almost spent", "over": "spent"}[one.level]


def energy(cluster: ClusterName = None, period: Month = "", output: Output = Format.table) -> None:
    """Report kilowatt-hours by team, measured or estimated, including the site's overhead (PUE)."""
    api = session.connect()
    found = api.billing.energy(session.choose_cluster(api, cluster), period)
    if _print_for_programs(found, output):
        return
    columns = [
        tables.Column("TEAM"),
        *(tables.Column(word, right=True) for word in ("KWH", "MEASURED", "ESTIMATED", "USD")),
    ]
    rows: list[list[tables.Cell]] = [
        [
            who, f"{one.kwh:,.2f}", f"{one.measured_kwh:,.2f}", f"{one.estimated_kwh:,.2f}",
            "" if one.usd is None else _usd(one.usd),
        ]
        for who, one in (*((one.team or "no team", one) for one in found.teams), ("all", found.total))
    ]  # fmt: skip
    _table(columns, rows)
    session.print_note(f"PUE {found.pue:g}: energy of the site divided by energy of the machines")
    if found.simulated:
        session.print_note("power is of SIMULATED GPUs")


def capacity(cluster: ClusterName = None, period: Month = "", output: Output = Format.table) -> None:
    """Report GPU utilisation, fragmentation of free GPUs, and queue waits by job size."""
    api = session.connect()
    found = api.billing.capacity(session.choose_cluster(api, cluster), period)
    if _print_for_programs(found, output):
        return
    for one in found.types:
        busiest = max(one.hours, key=lambda hour: hour.held / hour.there if hour.there else 0, default=None)
        words = f"{one.gpu_type}: {_share(one.utilisation)} held"
        if busiest is not None and busiest.there:
            words += (
                f", {_share(busiest.held / busiest.there)} in the fullest hour ({formatting.local_time(busiest.at)})"
            )
        session.print_line(words)
        if one.fragmentation is not None:
            worst = max(one.hours, key=lambda hour: hour.fragmented)
            words = f"{one.gpu_type}: {_share(one.fragmentation)} of the free GPU-hours on nodes that also ran a job"
            if worst.fragmented:
                words += f", most in the hour of {formatting.local_time(worst.at)} ({worst.fragmented:,.2f} of {worst.free:,.2f})"
            session.print_line(words)
    session.print_line(
        f"free now: {found.free_gpus} GPUs, {found.free_whole_node_gpus} of them on completely free nodes "
        f"({_share(found.fragmentation)} fragmented)"
    )
    if found.waits:
        session.print_line()
    columns = [
        tables.Column("JOBS OF"),
        *(tables.Column(word, right=True) for word in ("RUNS", "HALF WAIT", "90 %", "99 %")),
    ]
    rows: list[list[tables.Cell]] = [
        [one.size, f"{one.runs:,}", *(formatting.duration(wait or 0) for wait in (one.p50_s, one.p90_s, one.p99_s))]
        for one in found.waits
    ]
    _table(columns, rows)


def print_estimate(found: EstimateOut) -> None:
    """Prints the answer of `submit --estimate` and `run --estimate`: price, start and remaining budget."""
    if found.unread:
        price = f"unknown; options that could not be interpreted: {', '.join(found.unread)}"
    elif found.usd is None:
        price = f"{_usd(found.usd_per_hour or 0)} USD an hour; the total is unknown without a time limit"
    else:
        limit = formatting.duration(found.time_limit_s or 0)
        tasks = f"{found.tasks:,} tasks of " if found.tasks > 1 else ""
        price = (
            f"at most {_usd(found.usd)} USD: {tasks}{found.gpus} GPUs for {limit} ({found.gpu_hours:,.2f} GPU-hours)"
        )
    place = f" on {found.expected_nodes}" if found.expected_nodes else ""
    facts: list[tuple[str, tables.Cell]] = [
        ("price", price),
        ("start", f"{formatting.local_time(found.start)}{place}" if found.start else found.waits or "unknown to Slurm"),
    ]
    if found.budget is not None:
        unit = "USD" if found.budget.unit == "usd" else "GPU-hours"
        left = (
            f"{found.budget.left:,.2f} of {found.budget.limit:,.2f} {unit} a {found.budget.per} remain for {found.team}"
        )
        facts.append(("budget", (left, _LEVEL[found.budget.level])))
    tables.print_facts(facts)
    if found.warning:
        session.print_note(found.warning)


def _usd(amount: Any) -> str:
    return f"{amount:,.2f}"


def _share(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.1f} %"


def _table(columns: Sequence[tables.Column], rows: Sequence[Sequence[tables.Cell]]) -> None:
    if rows:
        tables.print_table(columns, rows)


def _print_for_programs(found: Any, output: Sheet | Format) -> bool:
    """Prints JSON or CSV and returns True; returns False when a table is to be printed."""
    if output.value == "json":
        session.print_json(found)
    elif output.value == "csv":
        from headway.schemas import spreadsheets

        sys.stdout.write(spreadsheets.text(found))
    return output.value != "table"
