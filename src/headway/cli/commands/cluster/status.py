"""ls, status: list the clusters, and show whether a cluster is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.node_table import node_lines
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import Terminal, detect_terminal, paint, without_control_characters, wrap_text

if TYPE_CHECKING:
    from headway.schemas.clusters import CheckOut, ClusterOut, GroupOut

_STATE_STYLE = {
    "ready": "good", "creating": "busy", "changing": "busy", "degraded": "warn", "down": "dim", "failed": "bad",
}  # fmt: skip


def ls(output: Output = Format.table) -> None:
    """List clusters."""
    clusters = common.connect().clusters.list()
    if output is Format.json:
        print_json(clusters)
        return
    if not clusters:
        common.print_line("no cluster yet; headway init, then headway apply")
        return
    columns = [
        tables.Column("CLUSTER"), tables.Column("STATE"), tables.Column("NODES", right=True), tables.Column("PLAN", drop_order=2),
        tables.Column("GPUS"), tables.Column("JOBS"), tables.Column("PROVIDER", drop_order=3),
        tables.Column("USD/H", right=True, drop_order=1),
    ]  # fmt: skip
    tables.print_table(columns, [_cluster_row(c) for c in clusters])


def _cluster_row(c: ClusterOut) -> list[tables.Cell]:
    simulated = " SIMULATED" if c.simulated_gpus and c.gpus else ""
    return [
        (c.name, "bold"),
        (c.state, _STATE_STYLE.get(c.state, "")),
        f"{c.nodes}+{c.spares}" if c.spares else str(c.nodes),
        c.plan,
        [(f"{c.gpus_used}/{c.gpus}" if c.gpus else "-", ""), (simulated, "warn")],
        f"{c.jobs_running} running, {c.jobs_pending} pending",
        c.provider,
        c.price_usd_per_hour or "-",
    ]


def status(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """Show whether a cluster is ready. Exits with 1 when it is not.

    Prints a line per check: ok or FAIL, and what to do."""
    api = common.connect()
    answer = api.clusters.status(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(answer)
    else:
        terminal = detect_terminal()
        lines = [*_headlines(answer.cluster, terminal), "", *check_lines(answer.checks, terminal)]
        lines += ["", *node_lines(answer.nodes, simulated=answer.cluster.simulated_gpus, terminal=terminal)]
        for line in lines:
            common.print_line(line)
    if not all(check.ok for check in answer.checks) or answer.cluster.state in {"failed", "down"}:
        raise typer.Exit(1)


def _headlines(c: ClusterOut, terminal: Terminal) -> list[str]:
    name, state = paint(c.name, "bold", terminal), paint(c.state, _STATE_STYLE.get(c.state, ""), terminal)
    size = formatting.plural(c.nodes, "node") + (f" and {formatting.plural(c.spares, 'spare')}" if c.spares else "")
    jobs = f"{formatting.plural(c.jobs_running, 'job')} running, {c.jobs_pending} waiting"
    lines = [f"{name} is {state}: {size} of {c.plan}, Slurm {c.slurm_version}", jobs]
    if len(c.groups) > 1:
        lines += [f"{group.name}: {_group(group)}" for group in c.groups]
    if c.origin:
        scaled = "; scaled since" if c.origin.scaled else ""
        where = without_control_characters(f"{c.origin.path} of {c.origin.url}")
        lines.append(f"applied: commit {c.origin.commit[:12]}, {where}{scaled}")
    if c.stale:
        lines.append(paint(f"data is old: {without_control_characters(c.stale)}", "warn", terminal))
    if c.drift and c.drift.changes:
        objects = without_control_characters(", ".join(c.drift.objects[:3]))
        more = f" and {len(c.drift.objects) - 3} more" if len(c.drift.objects) > 3 else ""
        lines.append(paint(f"differs from its file: {objects}{more}; headway plan shows the changes", "warn", terminal))
    return lines


def _group(group: GroupOut) -> str:
    count_text = f"{group.nodes} to {group.max} on demand" if group.idle_s is not None else f"{group.nodes} wanted"
    more = f" and {formatting.plural(group.spares, 'spare')}" if group.spares else ""
    price = f", ${group.price_usd_per_node_hour} a node and hour" if group.price_usd_per_node_hour else ""
    machines = formatting.plural(group.machines, "machine")
    return f"{machines} of {group.plan}{', spot' if group.spot else ''}; {count_text}{more}{price}"


def check_lines(checks: list[CheckOut], terminal: Terminal) -> list[str]:
    """`ok    name  message` or `FAIL  name  message`, one per check; the remedy is on the next line."""
    wide = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        word = paint("ok  ", "good", terminal) if check.ok else paint("FAIL", "bad", terminal)
        first, *more = wrap_text(check.message, terminal, indent=wide + 8)
        lines.append(f"{word}  {without_control_characters(check.name):<{wide}}  {first}")
        lines += [" " * (wide + 8) + line for line in more]
    return lines
