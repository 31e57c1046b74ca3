"""The table of nodes, as `headway nodes` and `headway status` print it. Its values are fields of schemas/nodes/nodes.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli.output import formatting, tables
from headway.cli.output.terminal import Terminal, paint

if TYPE_CHECKING:
    from headway.schemas.nodes.nodes import NodeOut


def node_lines(nodes: list[NodeOut], *, simulated: bool, terminal: Terminal) -> list[str]:
    """Returns the node table, with a line below it when the GPUs are simulated."""
    columns = [
        tables.Column("NODE"), tables.Column("STATE", shrink=True, min_width=21), tables.Column("GPUS"),
        tables.Column("JOBS", shrink=True, drop_order=4), tables.Column("CPUS", right=True, drop_order=3),
        tables.Column("MEMORY", right=True, drop_order=5), tables.Column("PARTITIONS", shrink=True, drop_order=6),
        tables.Column("REASON", shrink=True, min_width=24),
    ]  # fmt: skip
    lines = tables.table_lines(columns, [_node_row(n, terminal) for n in nodes], terminal)
    if simulated and any(n.gpus for n in nodes):
        lines.append(paint(formatting.SIMULATED_NOTE, "warn", terminal))
    return lines


def _node_row(n: NodeOut, terminal: Terminal) -> list[tables.Cell]:
    jobs = sorted({gpu.job_id for gpu in n.gpus if gpu.job_id is not None})
    words = "+".join(state.lower() for state in n.states) or n.machine or "unknown"
    style = formatting.node_style(n.states)
    if n.role == "head" and not n.states:
        style = "good" if n.machine == "running" else "bad"
    elif n.machine in {"stopped", "missing"}:
        # Slurm's "not responding" follows from it and would only take the reason's room.
        states = "+".join(s.lower() for s in n.states if s != "NOT_RESPONDING")
        words, style = f"{states}, machine {n.machine}" if states else f"machine {n.machine}", "bad"
    role = f" ({n.role})" if n.role != "node" else ""
    return [
        [(n.name, ""), (role, "dim")],
        (words, style),
        formatting.node_gpus(n, terminal),
        ",".join(map(str, jobs)),
        f"{n.cpus_used}/{n.cpus}" if n.cpus else "",
        f"{n.memory_used_mib / 1024:.0f}/{n.memory_mib / 1024:.0f}G" if n.memory_mib else "",
        ",".join(n.partitions),
        (n.reason, "warn"),
    ]
