"""Banners of a cluster's pages: figures that are out of date, with the reason, or a cluster that is not complete. Pure."""

from __future__ import annotations

from headway.schemas.clusters import ClusterOut
from headway.web.view_models import Notice

_BY_STATE = {
    "failed": Notice(
        "error",
        "The cluster is not complete.",
        "The last apply did not finish. Its changes are kept; run headway apply again.",
    ),
    "down": Notice(
        "info",
        "The cluster is down.",
        "Its machines are removed. Run headway apply with the same file to create it again with its kept data.",
    ),
    "creating": Notice(
        "info",
        "The cluster is being created.",
        "Machines start one by one; Slurm answers when the head is ready.",
    ),
    "changing": Notice("info", "A change is being applied.", "Jobs continue, except those that the plan lists."),
}


def cluster_banner(cluster: ClusterOut) -> tuple[Notice, ...]:
    """Returns the banners for the cluster's state; () if it is ready and the data is current."""
    found = []
    if cluster.stale:
        title = "These figures are old:" if cluster.as_of else "Slurm has not answered yet:"
        found.append(Notice("warning", title, cluster.stale))
    if cluster.state in _BY_STATE:
        found.append(_BY_STATE[cluster.state])
    return tuple(found)
