"""The impact of a changed slurm.conf is computed for each Slurm version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.changeset import Disturbs
from headway.render.files_by_role import render_files
from headway.render.slurm.change_impact import AbortingChanges, aborting_changes, changed_keys, impact_of_change
from tests.support.clusters.render_cases import gpu_cluster, site_of


def text(slurm: dict[str, str] | None = None, per_leaf: int = 3) -> str:
    cluster = replace(gpu_cluster(1, per_leaf), slurm=slurm or {})
    return render_files(cluster, site_of(cluster))["head"]["/etc/slurm/slurm.conf"].text


@pytest.mark.parametrize(
    ("slurm", "new", "old_version"),
    [
        ({"PriorityWeightAge": "5"}, Disturbs.RECONFIGURE, Disturbs.RECONFIGURE),
        ({"MaxJobCount": "100"}, Disturbs.RECONFIGURE, Disturbs.CONTROLLER_RESTART),
        ({"SlurmctldPort": "7000"}, Disturbs.CONTROLLER_RESTART, Disturbs.CONTROLLER_RESTART),
    ],
)
def test_changed_key_has_impact_of_its_slurm_version(
    slurm: dict[str, str], new: Disturbs, old_version: Disturbs
) -> None:
    assert impact_of_change(text(), text(slurm), "24.11") is new
    assert impact_of_change(text(), text(slurm), "22.05") is old_version


def test_added_nodes_restart_only_slurm_22_05_controller() -> None:
    assert impact_of_change(text(), text(per_leaf=4), "24.11") is Disturbs.RECONFIGURE
    assert impact_of_change(text(), text(per_leaf=4), "22.05") is Disturbs.CONTROLLER_RESTART


def test_unchanged_or_first_config_has_no_impact() -> None:
    assert impact_of_change(text(), text(), "24.11") is Disturbs.NOTHING
    assert impact_of_change("", text(), "24.11") is Disturbs.NOTHING
    assert impact_of_change(text(), text() + "# a comment\n", "24.11") is Disturbs.NOTHING
    assert changed_keys("A=1\n", "a=1\n") == ()


def test_removed_partition_and_resized_nodes_abort_jobs() -> None:
    old = "NodeName=a-[1-3] CPUs=96 Gres=gpu:h100:8\nPartitionName=DEFAULT X=1\nPartitionName=train Nodes=a-1\n"
    debug = "PartitionName=debug Nodes=ALL\n"
    assert aborting_changes(old + debug, old) == AbortingChanges(frozenset({"debug"}))
    assert not aborting_changes(old, old + debug)
    assert not aborting_changes("", old)
    assert not aborting_changes(old, old.replace("Nodes=a-1", "Nodes=ALL"))
    fewer = old.replace("a-[1-3] CPUs=96", "a-[1-2] CPUs=96")
    assert not aborting_changes(old, fewer)  # a node that goes is drained before
    other = "NodeName=a-1 CPUs=96 Gres=gpu:h100:8\nNodeName=a-[2-3] CPUs=96 Gres=gpu:h100:4\nPartitionName=train Nodes=a-1\n"
    assert aborting_changes(old, other) == AbortingChanges(nodes=frozenset({"a-2", "a-3"}))
    assert aborting_changes(old, old.replace("CPUs=96", "CPUs=128")).nodes == {"a-1", "a-2", "a-3"}
    assert not aborting_changes(text(), text({"PriorityWeightAge": "5"}))
