"""Jobs can't change aliases, names and versions for which promotions answer."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import NotAllowed
from headway.services.mlflow.journal_state import JournalState
from headway.services.mlflow.promoted_models import check_change
from headway.store.jobs.promotions import RequiredGatesRow
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

JOB = builders.job(7)
ALIAS = "registered-models/alias"


async def change(server: Server, name: str, *sent: tuple[str, Any]) -> None:
    """Has the job ask for a change; iris@2 is production by a promotion, and alias live requires gates."""
    await server.apply()
    kept: dict[str, Any] = {"person": "eve", "user": "eve", "document": {}}
    row = await server.store.promotions.save("lab", JOB.account, "iris", 2, "production", **kept)
    await server.store.promotions.change(row.id, of_state="pending", state="promoted", ended_at=1.0)
    gates = {"gates": {"licence": {"approval": "lead"}}}
    await server.store.promotions.require_gates(RequiredGatesRow("lab", JOB.account, "live", gates, "ann", 1.0))
    await server.store.promotions.require_gates(RequiredGatesRow("lab", JOB.account, "free", {}, "ann", 1.0))
    _, cluster = await server.state.clusters.get("lab")
    await check_change(server.state, cluster, JOB, JournalState(runs={"a": "RUNNING"}), name, sent)


@pytest.mark.parametrize(
    ("name", "sent", "why"),
    [
        (ALIAS, {"name": "iris", "alias": "production"}, "a promotion has set it"),
        (ALIAS, {"name": "new", "alias": "live"}, "requires gates for it"),
        ("registered-models/rename", {"name": "iris", "new_name": "old"}, "rename or delete model iris"),
        ("registered-models/rename", {"name": "evil", "new_name": "iris"}, "rename or delete model iris"),
        ("registered-models/rename", {"name": "evil", "newName": "iris"}, "rename or delete model iris"),
        ("registered-models/delete", {"name": "iris"}, "rename or delete model iris"),
        ("model-versions/delete", {"name": "iris", "version": 2}, "can't delete iris@2"),
        ("logged-models", {"source_run_id": "b"}, "did not create that run"),
    ],
)
async def test_changes_of_promoted_models_are_refused(
    server: Server, name: str, sent: dict[str, Any], why: str
) -> None:
    with pytest.raises(NotAllowed) as refused:
        await change(server, name, *sent.items())
    assert why in refused.value.message


async def test_all_values_of_a_field_are_checked(server: Server) -> None:
    sent = [("name", "iris"), ("alias", "production"), ("name", "mine"), ("alias", "mine")]
    with pytest.raises(NotAllowed):
        await change(server, ALIAS, *sent)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        (ALIAS, {"name": "iris", "alias": "mine"}),
        (ALIAS, {"name": "rose", "alias": "production"}),
        (ALIAS, {"name": "rose", "alias": "free"}),
        ("registered-models/rename", {"name": "rose", "new_name": "tulip"}),
        ("registered-models/delete", {"name": "rose"}),
        ("model-versions/delete", {"name": "iris", "version": "1"}),
        ("logged-models", {"source_run_id": "a"}),
        ("runs/search", {"name": "iris"}),
    ],
)
async def test_other_changes_are_free(server: Server, name: str, sent: dict[str, Any]) -> None:
    await change(server, name, *sent.items())
