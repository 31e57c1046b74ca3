"""Lineage."""

from __future__ import annotations

from urllib.parse import urlencode

from headway.schemas.lineage.lineage_graph import LineageGraphOut
from headway.sdk.connection import Resource, cluster_path


class Lineage(Resource):
    """What jobs, datasets, models and services were made of, and what was made of them."""

    def show(self, cluster: str, of: str) -> LineageGraphOut:
        """Returns the graph around a job ("12"), a version of a dataset or model ("books@3") or a service ("chat")."""
        return self._connection.get(f"{cluster_path(cluster, 'lineage')}?{urlencode({'of': of})}", LineageGraphOut)
