"""slurm.conf has the right power-saving settings for elastic groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.providers import AWS
from headway.domain.cluster import Cluster, Group
from headway.render.slurm.hooks.power_saving import settings
from tests.support.clusters import builders


def lab(nodes: int, version: str = "24.11") -> Cluster:
    """Two leaves of four nodes; the last of the second is a group that people scale."""
    whole = builders.cluster(8, 0)
    names = whole.slot_names
    groups = (
        Group("gpu", builders.H100, nodes, 7, slots=names[:7], idle_s=60),
        Group("own", builders.H100, 1, 1, slots=names[7:]),
    )
    return replace(whole, groups=groups, slurm_version=version)


def said(cluster: Cluster) -> dict[str, str]:
    return {key: value for key, value, _ in settings(cluster)}


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        (0, "lab-2-4"),
        (2, "lab-2-4,lab-1-[1-2]"),
        (5, "lab-2-4,lab-1-[1-4],lab-2-1"),
        (7, "lab-2-4,lab-1-[1-4],lab-2-[1-3]"),
    ],
)
def test_suspend_exc_nodes_lists_nodes_that_always_run(nodes: int, kept: str) -> None:
    """By name: of `:n` Slurm keeps so many that do nothing, beside those that work."""
    assert said(lab(nodes))["SuspendExcNodes"] == kept


def test_suspend_exc_nodes_is_omitted_without_always_on_nodes() -> None:
    """Slurm takes NONE for a node's name, and says that there is none such."""
    whole = lab(0)
    every = replace(whole, groups=(replace(whole.groups[0], slots=whole.slot_names),))
    assert "SuspendExcNodes" not in said(every)
    assert said(every)["SuspendTime"] == "60"


def test_down_and_drained_nodes_are_not_suspended() -> None:
    assert said(lab(0))["SuspendExcStates"] == "DOWN,DRAIN"
    assert not {"SuspendExcStates", "ReconfigFlags"} & set(
        said(lab(0, "22.05"))
    )  # which knows neither, and refuses them


def test_rented_machines_have_longer_to_come_up() -> None:
    assert said(lab(0))["ResumeTimeout"] == "900"
    assert said(replace(lab(0), provider=AWS))["ResumeTimeout"] == "1800"
