"""The banners on a cluster's pages: figures that are out of date, a cluster that is down or not complete, heads and nodes
that are down. Pure. The banner for a server that does not answer is `templates/parts/server_down_banner.html`."""

from __future__ import annotations

from dataclasses import dataclass

from headway.schemas.clusters import ClusterOut, DriftOut
from headway.web.views.overview_models import NodesView
from headway.web.views.state_wording import count


@dataclass(frozen=True, slots=True)
class StateView:
    """The cluster's state, shown next to its name at the top."""

    state: str
    simulated_gpus: bool


@dataclass(frozen=True, slots=True)
class Banner:
    """A banner on a page."""

    level: str  # error | warning | info
    title: str
    text: str


_BY_STATE = {
    "failed": Banner(
        "error",
        "The cluster is not complete.",
        "The last apply did not finish. Its changes are kept; run headway apply again.",
    ),
    "down": Banner(
        "info",
        "The cluster is down.",
        "Its machines are removed. Run headway apply with the same file to create it again with its kept data.",
    ),
    "creating": Banner(
        "info",
        "The cluster is being created.",
        "Machines start one by one; Slurm answers when the head is ready.",
    ),
    "changing": Banner("info", "A change is being applied.", "Jobs continue, except those that the plan lists."),
}


def cluster_banners(cluster: ClusterOut) -> tuple[Banner, ...]:
    """Returns the banners for the cluster's state; () if it is ready and the data is current."""
    found = []
    if cluster.stale:
        title = "These figures are old:" if cluster.as_of else "Slurm has not answered yet:"
        found.append(Banner("warning", title, cluster.stale))
    if cluster.state in _BY_STATE:
        found.append(_BY_STATE[cluster.state])
    if cluster.drift and cluster.drift.changes and cluster.state in ("ready", "degraded"):
        found.append(_drift_banner(cluster.drift))
    return tuple(found)


def _drift_banner(drift: DriftOut) -> Banner:
    shown, more = drift.objects[:3], len(drift.objects) - 3
    objects = "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
    effect = "disturbs jobs or sessions" if drift.disturbs_work else "disturbs no job"
    text = f"{objects}. headway plan shows what would change; headway apply sets it back and {effect}."
    return Banner("warning", "The cluster differs from its file:", text)


def down_banners(cluster: ClusterOut, nodes: NodesView) -> tuple[Banner, ...]:
    """Returns the banners for heads and nodes that are down."""
    found = _head_banners(nodes)
    bad = [node for leaf in nodes.leaves for node in leaf.nodes if node.kind == "down"]
    if bad and cluster.state not in ("down", "creating"):
        shown = "; ".join(f"{node.name}: {node.reason or node.word}" for node in bad[:3])
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        verb = "is" if len(bad) == 1 else "are"
        found.append(Banner("error", f"{count(len(bad), 'node')} {verb} down.", shown + more))
    return tuple(found)


def _head_banners(nodes: NodesView) -> list[Banner]:
    down = [head for head in nodes.heads if head.kind == "down"]
    if not down:
        return []
    if len(down) == len(nodes.heads):
        return [Banner("error", f"The head {down[0].name} is down.", "No job can start or be read until it is back.")]
    if down[0] is nodes.heads[0]:
        text = f"{nodes.heads[-1].name} is the active head: jobs continue, and accounting catches up when it is back."
        return [Banner("error", f"The head {down[0].name} is down.", text)]
    return [
        Banner(
            "error",
            f"The second head {down[0].name} is down.",
            "If the first head fails too, no other head takes over.",
        )
    ]
