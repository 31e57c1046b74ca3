"""Secrets of jobs."""

from __future__ import annotations

import builtins
from urllib.parse import urlencode

from headway.schemas.job_secrets import SecretChangedOut, SecretIn, SecretOut
from headway.sdk.connection import Resource, cluster_path
from headway.sdk.submission import build_request


class Secrets(Resource):
    """Values that jobs find in files, such as API keys. The server never returns a value."""

    def list(self, cluster: str) -> builtins.list[SecretOut]:
        """Returns the person's secrets and those of their teams, without values; for admins all."""
        return self._connection.get_list(cluster_path(cluster, "job-secrets"), SecretOut)

    def set(self, cluster: str, name: str, value: str, *, team: str = "", user: str = "") -> SecretChangedOut:
        """Stores a secret of the person, of a team that they lead, or of `user` (admins only)."""
        body = build_request(SecretIn, value=value, team=team, user=user)
        found = self._connection.request_json("PUT", cluster_path(cluster, "job-secrets", name), body=body)
        return SecretChangedOut.model_validate(found)

    def remove(self, cluster: str, name: str, *, team: str = "", user: str = "") -> SecretChangedOut:
        """Removes a secret. Jobs that have not started yet fail without it."""
        query = urlencode({key: value for key, value in (("team", team), ("user", user)) if value})
        path = cluster_path(cluster, "job-secrets", name) + (f"?{query}" if query else "")
        return SecretChangedOut.model_validate(self._connection.request_json("DELETE", path))
