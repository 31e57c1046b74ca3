"""Paths of a user's bundles and job folders on a cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.cluster import Cluster


@dataclass(frozen=True, slots=True)
class UserFolders:
    """Absolute paths on the shared storage, all owned by the user."""

    shared: str  # the user's folder on scratch, or their home where there is no scratch
    root: str  # bundles (read-only, by digest) and Headway's helpers
    jobs_root: str  # contains a folder for each job that was submitted with files

    def bundle_folder(self, digest: str) -> str:
        """Returns the folder of an unpacked bundle."""
        return f"{self.root}/bundles/{digest}"

    def helper_path(self, digest: str, name: str = "launch") -> str:
        """Returns the path of a helper program with that digest."""
        return f"{self.root}/{name}-{digest[:16]}.py"

    def plan_path(self, digest: str) -> str:
        """Returns the path of the plan of a pipeline with that digest."""
        return f"{self.root}/pipeline-{digest[:16]}.json"

    def job_folder(self, name: str, mark: str) -> str:
        """Returns a job's own folder; `mark` distinguishes it from other jobs of the same name."""
        return f"{self.jobs_root}/{name}-{mark}"


def user_folders(cluster: Cluster, user: str) -> UserFolders:
    """Returns the folders of a user."""
    shared = f"{cluster.storage.scratch or cluster.storage.home}/{user}"
    return UserFolders(shared, f"{shared}/.headway", f"{shared}/runs")
