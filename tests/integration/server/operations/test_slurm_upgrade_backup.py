"""An apply that changes Slurm's version makes a backup first and starts the roll of the nodes by itself
afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.node_images import IMAGES
from headway.domain.cluster import STATE_VERSION_FILE, BackupRule
from headway.errors import CommandFailed, Refused
from headway.schemas.clusters import Document
from headway.services.cluster_backend import ResolvedCluster
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

AT = "/api/v1/clusters/lab/apply"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    folder, key = tmp_path / "backups", tmp_path / "key"
    folder.mkdir()
    key.write_text("correct horse battery\n")
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(
        tmp_path / "state", builders.Clock(), roll_nodes=True, back_up=None, ensure_image=None
    )
    volume = tmp_path / "state" / "volumes" / "lab" / "head"
    volume.mkdir(parents=True)
    slurm = volume / STATE_VERSION_FILE

    async def resolve(document: Document) -> ResolvedCluster:
        image = str(document.spec.get("image", "debian13"))
        cluster = builders.cluster(4, name="lab")
        rule = BackupRule(str(folder), 3600, 2, str(key))
        return ResolvedCluster(replace(cluster, image=image, slurm_version=IMAGES[image].slurm.name, backup=rule))

    async def apply(cluster: Any, *_: Any) -> None:  # as the head's set-up does
        slurm.write_text(f"{cluster.slurm_version}\n")

    monkeypatch.setattr(made.backend.lifecycle, "resolve", resolve)
    made.backend.answers["apply"] = apply
    await made.apply()
    made.backend.calls.clear()
    yield made
    await made.close()


async def ask_for(server: Server, image: str, **ask: Any) -> Any:
    document = server_fakes.document("lab", image=image).model_dump()
    return await (await server.client("newer")).post(AT, json={"document": document, "confirmed": True, **ask})


async def newer(server: Server, **ask: Any) -> None:
    answer = await ask_for(server, "debian14", **ask)
    assert answer.status_code == 202, answer.text
    await server.work_off()


def did(server: Server) -> list[str]:
    return [name for name, _ in server.backend.calls if name in ("back_up", "apply", "roll_nodes")]


async def test_slurm_upgrade_backs_up_applies_and_then_rolls_nodes(server: Server) -> None:
    server.backend.answers["nodes_await_rollout"] = True
    await newer(server, deadline_s=600)
    assert did(server) == ["back_up", "apply", "roll_nodes"]
    before, about, _, path, header, _ = server.backend.named("back_up")[0]
    assert (before.slurm_version, header.slurm_version) == ("24.11", "24.11")
    assert "image" not in about["document"]["spec"], "the file of before"
    assert path.name.startswith("lab-")
    until = server.backend.named("roll_nodes")[0][4]
    assert until == 1000.0 + 600
    roll, apply, _ = await server.store.operations.recent("lab")
    assert apply.kept == (roll.id,), "whoever follows the one goes on with the other"


async def test_failed_backup_aborts_the_upgrade_and_keeps_the_document(server: Server) -> None:
    server.backend.answers["back_up"] = CommandFailed(["mariadb-dump"], 1, "no space")
    await newer(server)
    assert did(server) == ["back_up"]
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert "image" not in row.document["spec"]


async def test_repeated_upgrade_apply_makes_no_second_backup(server: Server) -> None:
    await newer(server)
    await newer(server)
    assert did(server) == ["back_up", "apply", "apply"], "and no roll where the nodes don't wait for one"


async def test_upgrade_does_not_queue_a_second_rollout(server: Server) -> None:
    async def wants(_: Any) -> bool:
        await server.store.operations.enqueue("lab", "roll", "eve", params={"back": False, "until": None})
        return True

    server.backend.answers["nodes_await_rollout"] = wants
    await newer(server)
    assert did(server).count("roll_nodes") == 1


async def test_queued_downgrade_is_refused_when_its_turn_comes(server: Server) -> None:
    assert (await ask_for(server, "debian14")).status_code == 202
    answer = await ask_for(server, "debian13")
    assert answer.status_code == 202, "by then nothing was changed"
    await server.work_off()
    assert did(server) == ["back_up", "apply"]
    second, first, _ = await server.store.operations.recent("lab")
    assert (first.state, second.state) == ("done", "failed")
    assert "no downgrade" in str(second.error)
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.document["spec"]["image"] == "debian14"


async def test_failed_image_build_keeps_the_document_and_the_old_version(server: Server) -> None:
    server.backend.answers["ensure_image"] = Refused("no mirror")
    await newer(server)
    assert did(server) == []
    assert (await ask_for(server, "debian13")).status_code == 202


async def test_downgrade_is_allowed_until_the_new_slurm_has_written_state(server: Server) -> None:
    server.backend.answers["apply"] = CommandFailed(["podman"], 125, "no room")
    await newer(server)
    assert did(server) == ["back_up", "apply"]
    assert (await ask_for(server, "debian13")).status_code == 202, "its head of before is there still, or is made again"


async def test_nodes_are_rolled_even_if_a_node_failed_the_apply(server: Server) -> None:
    work = server.backend.answers["apply"]

    async def apply(*args: Any) -> None:
        await work(*args)
        raise Refused("lab-1-3: did not answer SSH")

    server.backend.answers |= {"apply": apply, "nodes_await_rollout": True}
    await newer(server)
    assert did(server) == ["back_up", "apply", "roll_nodes"]


async def test_kept_data_of_a_removed_cluster_blocks_an_upgrade_without_backup(server: Server) -> None:
    await server.store.clusters.delete("lab", delete_data=False)
    answer = await ask_for(server, "debian14")
    assert (answer.status_code, "can't be backed up first" in answer.text) == (422, True)
    await newer_than_nothing(server)


async def test_head_without_a_state_version_file_uses_its_document_version(server: Server) -> None:
    volume = server.state.settings.data / "volumes/lab/head"
    (volume / STATE_VERSION_FILE).unlink()
    (volume / "slurmctld").mkdir()
    await newer(server)
    assert did(server) == ["back_up", "apply"]
    (volume / STATE_VERSION_FILE).unlink()
    assert (await ask_for(server, "debian13")).status_code == 422


async def newer_than_nothing(server: Server) -> None:
    (server.state.settings.data / "volumes/lab/head" / STATE_VERSION_FILE).unlink()
    assert (await ask_for(server, "debian14")).status_code == 202
