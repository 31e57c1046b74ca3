"""Incidents of nodes."""

from __future__ import annotations

import builtins

from headway.schemas.nodes.incidents import IncidentOut, ReturnIn
from headway.sdk.connection import Resource, cluster_path


class Incidents(Resource):
    """Incidents: node faults from the first symptom to the return to service."""

    def list(
        self, cluster: str, *, steps: bool = False, state: str = "", latest: int = 0
    ) -> builtins.list[IncidentOut]:
        """Returns incidents, latest first; with `steps` also each one's steps, requeued jobs and times. `state`: only those
        in this state, or all that are "open" or "closed"; `latest`: only so many, at most 1000 (0: all)."""
        path = cluster_path(cluster, "incidents")
        params = ({"steps": "true"} if steps else {}) | ({"state": state} if state else {})
        if not latest:
            return self._connection.get_list(path, IncidentOut, params or None)
        rows = self._connection.request_json("GET", path, params=params | {"limit": str(latest)})
        return [self._connection.parse(IncidentOut, row) for row in rows]

    def get(self, cluster: str, number: int) -> IncidentOut:
        """Returns one incident with all its steps."""
        return self._connection.get(cluster_path(cluster, "incidents", str(int(number))), IncidentOut)

    def return_node(self, cluster: str, number: int, *, false_alarm: bool = False) -> IncidentOut:
        """Tests the incident's node and returns it to service. Raises Conflict when a test fails."""
        path = cluster_path(cluster, "incidents", str(int(number)), "return")
        return self._connection.post(path, IncidentOut, ReturnIn(false_alarm=false_alarm), timeout_s=120)
