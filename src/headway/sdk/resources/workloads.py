"""Notebooks, pipelines and uploaded folders."""

from __future__ import annotations

import builtins

from headway.schemas.submissions import (
    BundleOut,
    NotebookIn,
    NotebookLinkOut,
    NotebookOut,
    PipelineIn,
    PipelineOut,
    PipelineRetryIn,
)
from headway.sdk.connection import Resource, cluster_path, non_empty


class Notebooks(Resource):
    """Notebooks: JupyterLab servers that run as jobs."""

    def list(self, cluster: str) -> builtins.list[NotebookOut]:
        """Returns the cluster's notebooks."""
        return self._connection.get_list(cluster_path(cluster, "notebooks"), NotebookOut)

    def start(self, cluster: str, request: NotebookIn) -> NotebookOut:
        """Submits JupyterLab as a job; `get` returns whether it runs."""
        return self._connection.post(cluster_path(cluster, "notebooks"), NotebookOut, request, timeout_s=120)

    def get(self, cluster: str, notebook: str) -> NotebookOut:
        """Returns one notebook."""
        return self._connection.get(cluster_path(cluster, "notebooks", notebook), NotebookOut)

    def link(self, cluster: str, notebook: str) -> NotebookLinkOut:
        """Returns a URL that opens the notebook in one browser, once, within a minute."""
        return self._connection.post(cluster_path(cluster, "notebooks", notebook, "link"), NotebookLinkOut)

    def stop(self, cluster: str, notebook: str) -> None:
        """Cancels the notebook's job."""
        self._connection.request_json("DELETE", cluster_path(cluster, "notebooks", notebook))


class Pipelines(Resource):
    """Pipelines: jobs that depend on each other."""

    def start(self, cluster: str, request: PipelineIn) -> PipelineOut:
        """Submits every step. Raises Refused with all faults before anything is submitted."""
        return self._connection.post(cluster_path(cluster, "pipelines"), PipelineOut, request, timeout_s=300)

    def list(self, cluster: str) -> builtins.list[PipelineOut]:
        """Returns pipelines, latest first."""
        return self._connection.get_list(cluster_path(cluster, "pipelines"), PipelineOut)

    def get(self, cluster: str, pipeline: str) -> PipelineOut:
        """Returns a pipeline by its id, or the latest of its name."""
        return self._connection.get(cluster_path(cluster, "pipelines", pipeline), PipelineOut)

    def retry(self, cluster: str, pipeline: str, request: PipelineRetryIn) -> PipelineOut:
        """Submits failed steps again, and all steps that depend on them."""
        path = cluster_path(cluster, "pipelines", pipeline, "retry")
        return self._connection.post(path, PipelineOut, request, timeout_s=300)


class Bundles(Resource):
    """Bundles: uploaded working folders, stored by content."""

    def exists(self, cluster: str, digest: str, *, user: str = "") -> bool:
        """Returns whether these files are on the cluster already."""
        path = cluster_path(cluster, "bundles", digest)
        return BundleOut.model_validate(
            self._connection.request_json("GET", path, params=non_empty({"user": user}))
        ).present

    def upload(self, cluster: str, digest: str, archive: bytes, *, user: str = "") -> BundleOut:
        """Uploads a tar.gz of files under their digest."""
        path = cluster_path(cluster, "bundles", digest)
        answer = self._connection.request_json(
            "PUT", path, data=archive, params=non_empty({"user": user}), timeout_s=600
        )
        return BundleOut.model_validate(answer)
