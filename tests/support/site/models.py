"""Models of team vision in `demo`: one promotion has ended well, one was refused, one waits for its evaluation."""

from __future__ import annotations

from typing import Any

from headway.services.app_state import AppState
from headway.store.jobs.promotions import ApprovalRow
from tests.support.servers.fake_mlflow import FakeMlflow

FOLDER = "workspaces/vision/1/models/m-1/artifacts"
GATES: dict[str, Any] = {
    "jobs": {"evaluate": {"run": "python3 evaluate.py"}},
    "gates": {
        "accuracy": {"metric": "accuracy", "min": 0.9},
        "held-out": {"metric": "accuracy", "job": "evaluate", "min": 0.92},
        "licence": {"approval": "lead"},
    },
}


async def put(state: AppState) -> None:
    """Stores the promotions, and lets a stand-in answer for MLflow."""
    files = {f"{FOLDER}/MLmodel": b"flavors: {}\n"}
    registry = FakeMlflow(files=files, created_ms=int(state.clock() * 1000) - 7_200_000)
    for number, accuracy in enumerate((0.91, 0.884, 0.953, 0.961), 1):
        tags = {"headway.job": str(100 + number), "headway.user": "alice"}
        registry.runs[f"r{number}"] = (tags, {"accuracy": accuracy, "loss": 1 - accuracy, "epoch": 20.0})
        registry.versions["street-signs", number] = (f"r{number}", f"mlflow-artifacts:/{FOLDER}")
    registry.versions["pedestrians", 1] = ("r1", f"mlflow-artifacts:/{FOLDER}")
    registry.aliases |= {("street-signs", "production"): 3, ("street-signs", "staging"): 4}
    state.mlflow.http = registry.client()
    for number, alias, change in (
        (2, "production", _ended("refused", 0.884, "failed", "", "skipped")),
        (3, "production", _ended("promoted", 0.953, "passed", "accuracy 0.9471", "passed") | {"manifest": "{}"}),
        (4, "production", {"state": "running", "results": _gates(0.961, "passed", "", "waiting", approved=True)}),
    ):
        kept: dict[str, Any] = {"gates": GATES, "mark": "m", "bundle": "", "git": None, "former": 1}
        row = await state.store.promotions.save(
            "demo", "vision", "street-signs", number, alias, person="alice", user="alice", document=kept
        )
        await state.store.promotions.change(row.id, of_state="pending", **change)
    await state.store.promotions.approve(
        ApprovalRow("demo", "vision", "street-signs", 3, "licence", "lena", ("lead",), "f", "CC BY 4.0", state.clock())
    )


def _ended(state: str, accuracy: float, first: str, saw: str, second: str) -> dict[str, Any]:
    why = "" if state == "promoted" else f"gate accuracy wants accuracy at least 0.9: accuracy {accuracy:g}"
    return {
        "state": state,
        "why": why,
        "ended_at": 1.0,
        "results": _gates(accuracy, first, saw, second, approved=state == "promoted"),
    }


def _gates(accuracy: float, first: str, saw: str, second: str, *, approved: bool) -> list[dict[str, Any]]:
    ran = 0 if second == "skipped" else 104
    told = (
        ("accuracy", first, "accuracy at least 0.9", f"accuracy {accuracy:g}", 0),
        ("held-out", second, "accuracy at least 0.92", saw, ran),
        (
            "licence", "passed" if approved else "failed", "approval licence by a lead other than alice",
            "approved by lena" if approved else "not approved", 0,
        ),
    )  # fmt: skip
    return [dict(zip(("name", "state", "wants", "saw", "job_id"), one, strict=True)) for one in told]
