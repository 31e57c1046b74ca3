"""The state and the banners on every page of a cluster: figures that are out of date, with the reason, or a cluster that
is not complete. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.schemas.clusters import ClusterOut


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


def cluster_banner(cluster: ClusterOut) -> tuple[Banner, ...]:
    """Returns the banners for the cluster's state; () if it is ready and the data is current."""
    found = []
    if cluster.stale:
        title = "These figures are old:" if cluster.as_of else "Slurm has not answered yet:"
        found.append(Banner("warning", title, cluster.stale))
    if cluster.state in _BY_STATE:
        found.append(_BY_STATE[cluster.state])
    return tuple(found)
