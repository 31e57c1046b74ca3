"""The agent knows which mounts are on other servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import config
from headway.catalog.providers import SSH
from headway.domain.machines.site import OwnedSite
from headway.render.system import agent_config
from tests.support.clusters import builders


def test_head_exports_count_as_remote_mounts_on_nodes(tmp_path: Path) -> None:
    """Its restart is no fault of the nodes': their jobs wait for it, and go on."""
    cluster = builders.cluster(provider=SSH)
    site = replace(builders.site(cluster), own=OwnedSite(nfs=("/home", "/scratch")))
    told = config.load(str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0]))))
    assert [(mount.path, mount.outside) for mount in told.mounts] == [
        ("/environments", False), ("/home", True), ("/scratch", True),
    ]  # fmt: skip
    told = config.load(str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0], head="lab-head"))))
    assert [one.path for one in told.mounts] == ["/environments"]


def _written(folder: Path, text: str) -> Path:
    (folder / "agent.json").write_text(text)
    return folder / "agent.json"
