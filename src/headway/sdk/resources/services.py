"""Services."""

from __future__ import annotations

import builtins

from headway.schemas.serving.service_metrics import ServiceMetricsOut
from headway.schemas.serving.services import ServiceIn, ServiceKeyIn, ServiceKeyOut, ServiceOut, ServiceScaleIn
from headway.sdk.connection import Resource, cluster_path


class Services(Resource):
    """Services: HTTP servers as jobs, behind one address that outlives them. A service is named by its id, TEAM:NAME or name."""

    def start(self, cluster: str, request: ServiceIn) -> ServiceOut:
        """Starts a service, or moves the running one to a new version. Raises InvalidSpec and Refused with all faults."""
        return self._connection.post(cluster_path(cluster, "services"), ServiceOut, request)

    def list(self, cluster: str) -> builtins.list[ServiceOut]:
        """Returns the services that have not ended."""
        return self._connection.get_list(cluster_path(cluster, "services"), ServiceOut)

    def get(self, cluster: str, service: str) -> ServiceOut:
        """Returns a service."""
        return self._connection.get(cluster_path(cluster, "services", service), ServiceOut)

    def metrics(self, cluster: str, service: str, minutes: int = 60) -> ServiceMetricsOut:
        """Returns requests, errors, times, tokens and cost of the last minutes, a week at most."""
        path = f"{cluster_path(cluster, 'services', service, 'metrics')}?minutes={minutes}"
        return self._connection.get(path, ServiceMetricsOut)

    def stop(self, cluster: str, service: str) -> ServiceOut:
        """Starts no further replica; those that run finish their requests and end. Raises Conflict if it is stopped."""
        return self._connection.post(cluster_path(cluster, "services", service, "stop"), ServiceOut)

    def scale(self, cluster: str, service: str, least: int, most: int) -> ServiceOut:
        """Changes how many replicas the service has. Raises Conflict if it is stopped."""
        request = ServiceScaleIn(min=least, max=most)
        return self._connection.post(cluster_path(cluster, "services", service, "scale"), ServiceOut, request)

    def create_key(self, cluster: str, service: str, label: str = "", per_minute: int | None = None) -> ServiceKeyOut:
        """Returns a new key of the service; only this answer has its text. `per_minute`: the most requests; None: no limit."""
        path = cluster_path(cluster, "services", service, "keys")
        return self._connection.post(path, ServiceKeyOut, ServiceKeyIn(label=label, per_minute=per_minute))

    def keys(self, cluster: str, service: str) -> builtins.list[ServiceKeyOut]:
        """Returns the keys of the service that were not revoked."""
        return self._connection.get_list(cluster_path(cluster, "services", service, "keys"), ServiceKeyOut)

    def revoke_key(self, cluster: str, service: str, key: str) -> None:
        """Revokes a key. Raises NotFound."""
        self._connection.request_json("DELETE", cluster_path(cluster, "services", service, "keys", key))
