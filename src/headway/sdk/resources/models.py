"""Models of MLflow's registry, and their promotions."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable
from urllib.parse import urlencode

from headway.errors import Unreachable
from headway.schemas.storage.models import (
    PROMOTION_ENDED,
    ApprovalIn,
    ApprovalOut,
    ManifestOut,
    ModelOut,
    PromotionIn,
    PromotionOut,
    RequiredGatesIn,
    RequiredGatesOut,
    SigningKeyOut,
)
from headway.sdk.connection import Resource, cluster_path, non_empty
from headway.sdk.reconnect import ServerOutage

POLL_S = 2.0
_LONG_S = 3600.0  # the server reads all files of a version


class Models(Resource):
    """Models: versions, approvals, promotions."""

    def list(self, cluster: str) -> builtins.list[ModelOut]:
        """Returns the models of the person's teams, each with its latest version."""
        return self._connection.get_list(cluster_path(cluster, "models"), ModelOut)

    def get(self, cluster: str, team: str, model: str) -> ModelOut:
        """Returns a model of a team with its newest versions."""
        return self._connection.get(cluster_path(cluster, "models", team, model), ModelOut)

    def approve(self, cluster: str, team: str, model: str, request: ApprovalIn) -> ApprovalOut:
        """Approves a version with its present files."""
        path = cluster_path(cluster, "models", team, model, "approvals")
        return self._connection.post(path, ApprovalOut, request, timeout_s=_LONG_S)

    def promote(self, cluster: str, request: PromotionIn) -> PromotionOut:
        """Asks for a promotion; `wait` returns its end. With `dry_run` it returns what the gates see that need no job."""
        return self._connection.post(cluster_path(cluster, "promotions"), PromotionOut, request, timeout_s=_LONG_S)

    def promotions(self, cluster: str, *, team: str = "", model: str = "") -> builtins.list[PromotionOut]:
        """Returns promotions, the latest first."""
        words = urlencode(non_empty({"team": team, "model": model}))
        return self._connection.get_list(f"{cluster_path(cluster, 'promotions')}?{words}", PromotionOut)

    def promotion(self, cluster: str, promotion: str) -> PromotionOut:
        """Returns a promotion with its gates."""
        return self._connection.get(cluster_path(cluster, "promotions", promotion), PromotionOut)

    def wait(
        self,
        cluster: str,
        promotion: str,
        *,
        poll_s: float = POLL_S,
        on_lost: Callable[[Unreachable], None] | None = None,
    ) -> PromotionOut:
        """Returns a promotion when it is promoted or refused. If the server does not answer, this keeps waiting, because the next
        server continues; `on_lost` is called once for each outage. Raises Unreachable as `Job.wait`."""
        outage = ServerOutage(on_lost)
        while True:
            try:
                found = self.promotion(cluster, promotion)
            except Unreachable as error:
                outage.record(error)
                self.reconnect()
            else:
                outage.clear()
                if found.state in PROMOTION_ENDED:
                    return found
            time.sleep(poll_s)

    def required_gates(self, cluster: str, team: str, alias: str) -> RequiredGatesOut:
        """Returns the gates that all promotions of a team's models to an alias must pass."""
        return self._connection.get(cluster_path(cluster, "required-gates", team, alias), RequiredGatesOut)

    def require_gates(self, cluster: str, team: str, alias: str, request: RequiredGatesIn) -> RequiredGatesOut:
        """Sets these gates, in place of earlier ones. Raises NotAllowed for people who do not lead the team."""
        path = cluster_path(cluster, "required-gates", team, alias)
        return self._connection.parse(RequiredGatesOut, self._connection.request_json("PUT", path, body=request))

    def manifest(self, cluster: str, promotion: str) -> str:
        """Returns the signed manifest of a promotion, as JSON text. Raises NotFound if it was not promoted."""
        path = cluster_path(cluster, "promotions", promotion, "manifest")
        return self._connection.get(path, ManifestOut).manifest

    def signing_key(self, cluster: str) -> str:
        """Returns the public key (PEM) with which the cluster's manifests are verified."""
        return self._connection.get(cluster_path(cluster, "signing-key"), SigningKeyOut).public_key
