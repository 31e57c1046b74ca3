"""The agent knows which mounts are on other servers, and which GPUs have no driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent import config
from headway.catalog.providers import SSH
from headway.domain.machines.site import OwnedSite
from headway.render.system import agent_config
from tests.support.clusters import builders
from tests.support.clusters.render_cases import own_gpu_cluster, own_gpu_site


def test_head_exports_count_as_remote_mounts_on_nodes(tmp_path: Path) -> None:
    """Its restart is no fault of the nodes': their jobs wait for it, and go on."""
    cluster = builders.cluster(provider=SSH)
    site = replace(builders.site(cluster), own=OwnedSite(nfs=("/home", "/scratch")))
    told = config.load_config(str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0]))))
    assert [(mount.path, mount.outside) for mount in told.mounts] == [
        ("/environments", False), ("/home", True), ("/scratch", True),
    ]  # fmt: skip
    told = config.load_config(
        str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0], head="lab-head")))
    )
    assert [one.path for one in told.mounts] == ["/environments"]


def test_node_that_should_have_gpus_knows_those_without_a_driver(tmp_path: Path) -> None:
    cluster, site = own_gpu_cluster(), own_gpu_site()
    sound, bare = cluster.slot_names
    silent = tuple(replace(gpu, product="", minor=-1) for gpu in site.found[bare].gpus)
    site = replace(site, found={**site.found, bare: replace(site.found[bare], gpus=silent)})
    path = str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0])))
    told = [config.load_config(path, name) for name in (sound, bare)]
    assert [(one.gpus, one.driverless_gpus) for one in told] == [(8, 0), (0, 2)]
    cpus = replace(cluster.groups[0], plan=replace(cluster.groups[0].plan, gpus=0))
    without = replace(cluster, groups=(cpus,))
    path = str(_written(tmp_path, agent_config.config(without, site, cpus)))
    assert config.load_config(path, bare).driverless_gpus == 0, "a display's GPU in a node for CPUs"


def _written(folder: Path, text: str) -> Path:
    (folder / "agent.json").write_text(text)
    return folder / "agent.json"
