"""Uploaded folders."""

from __future__ import annotations

from headway.schemas.submission.bundles import BundleOut
from headway.sdk.connection import Resource, cluster_path, non_empty


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
