"""topology.conf."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.render.escaping import MARK, slurm_text
from headway.render.slurm.conf_syntax import ConfLine


def topology_conf(cluster: Cluster) -> str:
    """Returns topology.conf: the switches, leaves first as in Slurm's own examples."""
    lines = [ConfLine(comment=MARK)]
    for switch in sorted(cluster.switches, key=lambda switch: bool(switch.children)):
        kind, members = ("Switches", switch.children) if switch.children else ("Nodes", switch.nodes)
        lines.append(ConfLine((("SwitchName", switch.name), (kind, compress(members)))))
    return slurm_text(lines, "topology.conf")
