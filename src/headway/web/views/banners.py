"""Banners of a cluster's pages: figures that are out of date, with the reason, or a cluster that is not complete. Pure."""

from __future__ import annotations

from headway.schemas.clusters import ClusterOut
from headway.web.view_models import Notice

_BY_STATE = {
    "failed": Notice(
        "error",
        "The cluster is not complete.",
        "The last apply did not finish. What it did is kept; run headway apply again.",
    ),
    "down": Notice(
        "info",
        "The cluster is down.",
        "Its machines are gone. headway apply with the same file brings it back with its kept data.",
    ),
    "creating": Notice(
        "info",
        "The cluster is being made.",
        "Machines come up one by one; Slurm can be asked once they have.",
    ),
    "changing": Notice("info", "A change is being applied.", "Jobs go on unless the plan said otherwise."),
}


def cluster_banner(cluster: ClusterOut) -> tuple[Notice, ...]:
    """Returns the banners for the cluster's state; () if it is ready and the data is current."""
    found = []
    if cluster.stale:
        title = "These figures are old:" if cluster.as_of else "Slurm could not be asked yet:"
        found.append(Notice("warning", title, cluster.stale))
    if cluster.state in _BY_STATE:
        found.append(_BY_STATE[cluster.state])
    return tuple(found)
