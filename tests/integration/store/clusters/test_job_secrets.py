"""Former values of secrets are kept for masking, but not without limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.access.job_secret_limits import MOST_FORMER_PER_OWNER
from headway.store import Store, open_store

MEM, RED = SecretOwner(OwnerKind.USER, "mem"), SecretOwner(OwnerKind.TEAM, "red")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await open_store(tmp_path)
    yield made
    await made.close()


async def test_latest_former_values_of_an_owner_are_kept(store: Store) -> None:
    secrets, many = store.job_secrets, MOST_FORMER_PER_OWNER + 5
    await secrets.put("lab", RED, "hf", "of red", "lee", 100)
    await secrets.put("lab", RED, "hf", "of red too", "lee", 100)
    for number in range(many + 1):
        await secrets.put("lab", MEM, "hf", str(number), "mem", 100)
    kept = {secrets.value_of(row) for row in await secrets.values_to_mask("lab", MEM)}
    assert kept == {str(number) for number in range(5, many + 1)}
    assert {secrets.value_of(row) for row in await secrets.values_to_mask("lab", RED)} == {"of red", "of red too"}


async def test_owner_is_no_other_of_the_same_name(store: Store) -> None:
    secrets, team = store.job_secrets, SecretOwner(OwnerKind.TEAM, "mem")
    await secrets.put("lab", MEM, "hf", "mine", "mem", 100)
    assert await secrets.of_owners("lab", team) == await secrets.values_to_mask("lab", team) == ()
    assert await secrets.remove("lab", team, "hf") is None
    removed = await secrets.remove("lab", MEM, "hf")
    assert removed is not None
    former = await secrets.values_to_mask("lab", MEM)
    assert [secrets.value_of(row) for row in former] == [secrets.value_of(removed)] == ["mine"]
