"""Quotas of users are shown to themselves, to operators for all users, and a volume without quotas says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.domain.storage.folders import StorageFolders
from headway.domain.storage.quotas import ObservedQuota, UserQuota
from headway.errors import Unreachable
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

GIB = 1 << 30
USERS = {"eve": UserQuota(10 * GIB, GIB, assigned=True), "bob": UserQuota(10 * GIB, 9 * GIB, assigned=True)}
SEEN = {"/home": ObservedQuota("xfs", "/dev/sdb1", True, USERS), "/scratch": ObservedQuota("ext4", "/dev/vda", False)}


async def limited(server: Server, quotas: Any = SEEN) -> None:
    server.backend.clusters["lab"] = {"storage": StorageFolders(home_quota=10 * GIB, scratch_quota=GIB)}
    server.backend.answers |= {"read": reading(), "machines": (), "volume_space": (), "quotas": quotas}
    await server.apply()
    await server.state.readings.snapshot(replace(builders.cluster(), storage=StorageFolders(home_quota=10 * GIB)))


async def test_people_see_their_own_quota_and_operators_see_all(server: Server) -> None:
    await limited(server)
    for person, role, expected in (("eve", "member", ["eve"]), ("olga", "operator", ["bob", "eve"])):
        client = await server.client(person, role)
        home, scratch = (await client.get("/api/v1/clusters/lab/storage")).json()["volumes"]
        assert [row["user"] for row in home["quotas"]] == expected
        assert home["quota_fault"] == ""
        assert scratch["quotas"] == []
        assert "/dev/vda" in scratch["quota_fault"]
    eve = await server.client("eve", "member")
    page = (await eve.get("/clusters/lab/storage")).text
    assert "/home/eve" in page
    assert "/home/bob" not in page
    assert "tune2fs" in page
    (own,) = (await eve.get("/api/v1/clusters/lab/limits")).json()["limits"]
    assert (own["where"], own["unit"], own["used"], own["limit"]) == ("/home/eve", "bytes", GIB, 10 * GIB)


async def test_head_that_does_not_answer_is_named(server: Server) -> None:
    def away(*_: Any) -> Any:
        raise Unreachable("lab-head does not answer")

    await limited(server, away)
    eve = await server.client("eve", "member")
    assert (await eve.get("/api/v1/clusters/lab/limits")).json()["stale"] == "lab-head does not answer"
    assert (await eve.get("/api/v1/clusters/lab/storage")).json()["stale"] == "lab-head does not answer"
