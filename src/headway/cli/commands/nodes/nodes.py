"""nodes: the nodes of a cluster."""

from __future__ import annotations

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output.node_table import node_lines
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import detect_terminal


def nodes(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """List nodes with state and GPUs; a filled cell is an allocated GPU."""
    api = common.connect()
    answer = api.clusters.status(common.choose_cluster(api, cluster))
    common.warn_if_stale(answer.cluster)
    if output is Format.json:
        print_json(answer.nodes)
        return
    for line in node_lines(answer.nodes, simulated=answer.cluster.simulated_gpus, terminal=detect_terminal()):
        common.print_line(line)
