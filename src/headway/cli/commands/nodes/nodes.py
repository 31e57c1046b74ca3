"""nodes: the nodes of a cluster."""

from __future__ import annotations

from headway.cli import session
from headway.cli.output.node_table import node_lines
from headway.cli.output.terminal import detect_terminal
from headway.cli.session import ClusterName, Format, Output


def nodes(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """List nodes with state and GPUs; a filled cell is an allocated GPU."""
    api = session.connect()
    answer = api.clusters.status(session.choose_cluster(api, cluster))
    session.warn_if_stale(answer.cluster)
    if output is Format.json:
        session.print_json(answer.nodes)
        return
    for line in node_lines(answer.nodes, simulated=answer.cluster.simulated_gpus, terminal=detect_terminal()):
        session.print_line(line)
