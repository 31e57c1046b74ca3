"""Notebooks."""

from __future__ import annotations

import builtins

from headway.schemas.submission.notebooks import NotebookIn, NotebookLinkOut, NotebookOut
from headway.sdk.connection import Resource, cluster_path


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
