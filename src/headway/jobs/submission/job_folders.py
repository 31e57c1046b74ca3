"""Where a person's bundles and the folders of their jobs lie on a cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Place:
    """Absolute paths on the shared storage, all the person's own."""

    shared: str  # the person's folder on scratch; their home where there is no scratch
    root: str  # bundles (read-only, by digest) and Headway's helpers
    runs: str  # a folder for each job that was sent with files

    def bundle(self, digest: str) -> str:
        return f"{self.root}/bundles/{digest}"

    def helper(self, digest: str, name: str = "launch") -> str:
        return f"{self.root}/{name}-{digest[:16]}.py"

    def work(self, name: str, mark: str) -> str:
        """A job's own folder; `mark` tells it from others of the same name."""
        return f"{self.runs}/{name}-{mark}"


def place(cluster: Cluster, user: str) -> Place:
    shared = f"{cluster.storage.scratch or cluster.storage.home}/{user}"
    return Place(shared, f"{shared}/.headway", f"{shared}/runs")
