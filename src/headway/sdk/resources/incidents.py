"""Incidents of nodes."""

from __future__ import annotations

import builtins

from headway.schemas.nodes.incidents import IncidentOut, ReturnIn
from headway.sdk.connection import Resource, cluster_path


class Incidents(Resource):
    """Incidents: node faults from the first symptom to the return to service."""

    def list(self, cluster: str, *, steps: bool = False) -> builtins.list[IncidentOut]:
        """Returns incidents, latest first; with `steps` also each one's steps, requeued jobs and times."""
        params = {"steps": "true"} if steps else None
        return self._connection.get_list(cluster_path(cluster, "incidents"), IncidentOut, params)

    def get(self, cluster: str, number: int) -> IncidentOut:
        """Returns one incident with all its steps."""
        return self._connection.get(cluster_path(cluster, "incidents", str(int(number))), IncidentOut)

    def return_node(self, cluster: str, number: int, *, false_alarm: bool = False) -> IncidentOut:
        """Tests the incident's node and returns it to service. Raises Conflict when a test fails."""
        path = cluster_path(cluster, "incidents", str(int(number)), "return")
        return self._connection.post(path, IncidentOut, ReturnIn(false_alarm=false_alarm), timeout_s=120)
