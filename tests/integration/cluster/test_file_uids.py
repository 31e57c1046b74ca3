"""Users get the uids of the cluster file. If they can't, plan and apply say it before anything is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site
from headway.domain.cluster import Cluster
from headway.domain.teams import User
from headway.errors import Refused
from headway.providers.base import Placement
from tests.support.clusters import builders

LAB = builders.cluster(name="lab", nodes=1)


def with_uids(**uids: int | None) -> Cluster:
    return replace(LAB, users=tuple(User(name, (), ("default",), uid=uid) for name, uid in uids.items()))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Any]:
    found = await builders.store(tmp_path, lambda: 1000.0)
    yield found
    await found.close()


async def uids(
    store: Any, cluster: Cluster, *, give: bool = True, known: dict[str, int] | None = None
) -> dict[str, int]:
    context = ClusterContext(None, store, None, Path())  # type: ignore[arg-type]
    place = Placement("10.64.0.0/24", "10.64.0.1", dict.fromkeys(cluster.machine_names, "10.64.0.9"), 0, 0, 0, 0)
    return dict((await read_site(cluster, context, place, give_uids=give, known_uids=known)).uids)


async def test_uid_of_the_file_comes_before_that_of_machines(store: Any) -> None:
    given = await uids(store, with_uids(alice=2001, bob=None, carol=None), known={"alice": 1005, "bob": 1006})
    assert given == {"alice": 2001, "bob": 1006, "carol": 20000}
    assert await uids(store, with_uids(alice=2001, bob=None, carol=None)) == given


async def test_uid_never_changes(store: Any) -> None:
    await uids(store, with_uids(alice=None))
    for give in (False, True):  # plan and apply
        with pytest.raises(Refused, match=r"users.alice.uid is 2001, and alice has uid 20000 since an earlier apply"):
            await uids(store, with_uids(alice=2001, dora=None), give=give)
    assert await store.linux_uids.known_uids(["dora"]) == {}  # nothing was assigned


async def test_uid_of_another_user_is_refused(store: Any) -> None:
    await uids(store, with_uids(alice=2001))
    with pytest.raises(Refused, match=r"users.bob.uid is 2001, and another user of this server has it"):
        await uids(store, with_uids(bob=2001), give=False)
