"""An apply that changes Slurm's version: the backup comes first, the roll of its nodes by itself after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.api.work import Resolved
from headway.domain.cluster import BackupRule
from headway.errors import CommandFailed
from headway.wire.clusters import Document
from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server

VERSIONS = {"debian13": "24.11", "debian14": "26.05"}
AT = "/api/v1/clusters/lab/apply"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    folder, key = tmp_path / "backups", tmp_path / "key"
    folder.mkdir()
    key.write_text("correct horse battery\n")
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock(), roll=True, back_up=None)

    def resolve(document: Document) -> Resolved:
        image = str(document.spec.get("image", "debian13"))
        cluster = builders.cluster(4, name="lab")
        rule = BackupRule(str(folder), 3600, 2, str(key))
        return Resolved(replace(cluster, image=image, slurm_version=VERSIONS[image], backup=rule))

    monkeypatch.setattr(made.work, "resolve", resolve)
    await made.apply()
    made.work.calls.clear()
    yield made
    await made.close()


async def newer(server: Server, **ask: Any) -> None:
    document = server_fakes.document("lab", image="debian14").model_dump()
    answer = await (await server.client("newer")).post(AT, json={"document": document, "confirmed": True, **ask})
    assert answer.status_code == 202, answer.text
    await server.work_off()


def did(server: Server) -> list[str]:
    return [name for name, _ in server.work.calls if name in ("back_up", "apply", "roll")]


async def test_a_backup_of_what_was_then_the_apply_then_the_nodes(server: Server) -> None:
    server.work.answers["wants_roll"] = True
    await newer(server, deadline_s=600)
    assert did(server) == ["back_up", "apply", "roll"]
    before, about, _, path, header, _ = server.work.named("back_up")[0]
    assert (before.slurm_version, header.slurm_version) == ("24.11", "24.11")
    assert "image" not in about["document"]["spec"], "the file of before"
    assert path.name.startswith("lab-")
    until = server.work.named("roll")[0][4]
    assert until == 1000.0 + 600
    roll, apply, _ = await server.store.operations("lab")
    assert apply.kept == (roll.id,), "whoever follows the one goes on with the other"


async def test_without_its_backup_nothing_is_touched_and_the_file_stays(server: Server) -> None:
    server.work.answers["back_up"] = CommandFailed(["mariadb-dump"], 1, "no space")
    await newer(server)
    assert did(server) == ["back_up"]
    row = await server.store.cluster("lab")
    assert row is not None
    assert "image" not in row.document["spec"]


async def test_an_apply_that_is_done_again_makes_no_second_backup(server: Server) -> None:
    await newer(server)
    await newer(server)
    assert did(server) == ["back_up", "apply", "apply"], "and no roll where the nodes don't wait for one"


async def test_a_roll_that_is_under_way_is_not_asked_for_twice(server: Server) -> None:
    async def wants(_: Any) -> bool:
        await server.store.enqueue_operation("lab", "roll", "eve", params={"back": False, "until": None})
        return True

    server.work.answers["wants_roll"] = wants
    await newer(server)
    assert did(server).count("roll") == 1
