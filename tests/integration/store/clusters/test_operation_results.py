"""Tests of the store of operations' results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.store.store import Store
from tests.support.clusters import builders


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await builders.store(tmp_path)
    yield opened
    await opened.close()


async def test_results_of_two_kinds_stay_apart(store: Store) -> None:
    await store.fabric_tests.record("lab", "op-1", 10.0, {"links": 3})
    await store.whatifs.record("lab", "op-2", 20.0, {"jobs": 5})
    await store.whatifs.record("rack", "op-3", 30.0, {"jobs": 7})
    assert await store.fabric_tests.latest("lab") == [{"links": 3}]
    assert await store.whatifs.latest("lab") == [{"jobs": 5}]
    assert await store.whatifs.get("lab", "op-1") is None
    assert await store.whatifs.get("lab", "op-3") is None
    assert await store.whatifs.get("rack", "op-3") == {"jobs": 7}


async def test_oldest_results_of_a_kind_and_cluster_are_removed(store: Store) -> None:
    await store.fabric_tests.record("lab", "op-fabric", 0.0, {"number": -1})
    await store.whatifs.record("rack", "op-rack", 0.0, {"number": -2})
    for number in range(12):
        await store.whatifs.record("lab", f"op-{number}", float(number + 1), {"number": number})
    assert [one["number"] for one in await store.whatifs.latest("lab")] == list(range(11, 1, -1))
    assert [one["number"] for one in await store.whatifs.latest("lab", 2)] == [11, 10]
    assert await store.fabric_tests.latest("lab") == [{"number": -1}]
    assert await store.whatifs.latest("rack") == [{"number": -2}]


async def test_second_result_of_an_operation_replaces_the_first(store: Store) -> None:
    await store.whatifs.record("lab", "op-1", 1.0, {"number": 1})
    await store.whatifs.record("lab", "op-1", 2.0, {"number": 2})
    assert await store.whatifs.latest("lab") == [{"number": 2}]


@pytest.mark.parametrize("delete_data", [True, False])
async def test_results_go_with_the_data_of_their_cluster(store: Store, delete_data: bool) -> None:
    await store.whatifs.record("lab", "op-1", 1.0, {"number": 1})
    await store.whatifs.record("rack", "op-2", 1.0, {"number": 2})
    await store.clusters.delete("lab", delete_data=delete_data)
    assert await store.whatifs.latest("lab") == ([] if delete_data else [{"number": 1}])
    assert await store.whatifs.latest("rack") == [{"number": 2}]
