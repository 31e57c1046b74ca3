"""Trainings are found by their fields, tags and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.store import Store
from headway.store.jobs.trainings import MetricCondition, MetricKey, TrainingQuery, TrainingRow
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock


def row(job: int, loss: float | None, lowest: float | None = 1.0, **fields: object) -> TrainingRow:
    told = {
        "cluster": "lab",
        "label": str(job),
        "name": f"run-{job}",
        "user": "alice",
        "team": "vision",
        "state": "COMPLETED",
    }
    metrics = {"loss": (9, loss, lowest, 5.0), "val/acc top.1": (9, job / 10, 0.0, 1.0)}
    return TrainingRow(**{**told, "job_id": job, "submitted_at": 1.0, "reported_at": 2.0, "metrics": metrics, **fields})  # type: ignore[arg-type]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await builders.store(tmp_path, Clock())
    await opened.trainings.save(
        [row(7, 2.0), row(8, None, None), row(9, 1.5, 0.5, user="bob", state="RUNNING"), row(9, 1.0, cluster="other")]
    )
    yield opened
    await opened.close()


async def numbers(store: Store, **query: object) -> list[int]:
    asked = TrainingQuery(**query)  # type: ignore[arg-type]
    found = [one.job_id for one in await store.trainings.search("lab", asked)]
    assert await store.trainings.count("lab", asked) == len(found)
    return found


async def test_filters_and_orders(store: Store) -> None:
    await store.trainings.annotate("lab", 8, "lower rate", ["sweep", "bad"])
    assert await numbers(store) == [9, 8, 7]
    assert await numbers(store, users=frozenset({"bob"})) == [9]
    assert await numbers(store, states=frozenset({"COMPLETED"}), teams=frozenset({"vision"})) == [8, 7]
    assert await numbers(store, tags=frozenset({"sweep", "bad"})) == [8]
    assert await numbers(store, text="LOWER") == [8]
    assert await numbers(store, text="%") == []
    loss, accuracy = MetricKey("loss"), MetricKey("val/acc top.1")
    assert await numbers(store, conditions=(MetricCondition(loss, "<", 1.9),)) == [9]
    assert await numbers(store, conditions=(MetricCondition(accuracy, ">=", 0.8),)) == [9, 8]
    assert await numbers(store, conditions=(MetricCondition(MetricKey("none"), "<", 1e9),)) == []
    assert await numbers(store, sort=loss) == [9, 7, 8]
    assert await numbers(store, sort=MetricKey("loss", "lowest"), descending=True) == [7, 9, 8]
    assert [one.job_id for one in await store.trainings.search("lab", TrainingQuery(), offset=1, limit=1)] == [8]


async def test_note_and_tags_stay_when_the_job_reports_again(store: Store) -> None:
    await store.trainings.annotate("lab", 7, "first", ["a", "b"])
    await store.trainings.annotate("lab", 7, None, ["c"], ["a"])
    await store.trainings.save([row(7, 0.25, 0.125, state="FAILED")])
    found = await store.trainings.get("lab", 7)
    assert found is not None
    assert (found.note, found.tags, found.state, found.metrics["loss"]) == (
        "first",
        ("b", "c"),
        "FAILED",
        (9, 0.25, 0.125, 5.0),
    )
    assert await store.trainings.tags("lab") == ["b", "c"]
    await store.trainings.forget("lab", 7)
    await store.trainings.save([row(7, 0.25)])
    again = await store.trainings.get("lab", 7)
    assert again is not None
    assert (again.note, again.tags) == ("", ())


async def test_unfinished_trainings_have_their_last_state(store: Store) -> None:
    assert await store.trainings.unfinished("lab", 10) == {9: "RUNNING"}
