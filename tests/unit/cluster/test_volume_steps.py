"""Volumes are mounted and unmounted in an order in which an unavailable one blocks nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.providers import SSH
from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.cluster.machine_steps import stage_timeout_s, steps_by_stage
from headway.domain.changeset import Change, Disturbs
from headway.domain.machines.observed_state import NOT_OBSERVED
from headway.domain.machines.site import OwnedSite
from headway.domain.machines.systemd_unit import Unit
from headway.domain.storage.folders import StorageFolders, Volume
from headway.render.system import volume_mounts
from headway.render.system.unit_list import units_by_role
from tests.support.clusters import builders

MODELS_2 = Volume("models2", "/models2", "nfs4", "filer:/scratch/models")
MODELS = Volume("models", "/models", "nfs4", "filer:/export/models", ("rw", "hard"))


def test_volume_is_unmounted_after_the_agent_restart() -> None:
    unit = "/etc/systemd/system/models.mount"
    agent = Unit("headway-agent.service", restart_on=("/etc/headway/agent.json",), stage="node")
    desired = DesiredMachine.build({}, {}, (agent,))
    rows = list(machine_changes("n1", desired, replace(NOT_OBSERVED, managed=(unit,))))
    (gone,) = [row for row in rows if row.what == unit]
    assert gone.disturbs is Disturbs.JOBS
    stages = steps_by_stage(rows, desired, {}, fresh=False)
    assert all(step["op"] not in ("unmount", "managed") for step in stages.get("base", ()))
    last = [step["op"] for step in stages["node"]]
    # The last, because a repair may mount it again for as long as systemd knows it.
    assert last[-5:] == ["unmount", "remove", "managed", "daemon_reload", "unmount"]
    assert last.index("units") < last.index("unmount")


def test_unavailable_volume_does_not_block_heads_or_nodes() -> None:
    cluster = replace(builders.cluster(2), storage=StorageFolders(volumes=(MODELS,)))
    roles = units_by_role(cluster, builders.site(cluster))
    for role, last in (("head", "controller"), ("node", "node")):
        desired = DesiredMachine.build({}, {}, roles[role])
        stages = steps_by_stage(machine_changes("x", desired, NOT_OBSERVED), desired, {}, fresh=True)
        (mount,) = (step for step in stages["outside"] if step["op"] == "units")
        assert (mount["names"], mount["may_fail"]) == (["models.mount"], True)
        order = [stage for stage in stages if stage in ("outside", last)]
        assert order == (["controller", "outside"] if role == "head" else ["outside", "node"])
        others = [step for stage, steps in stages.items() for step in steps if stage != "outside"]
        assert not any(step.get("may_fail") or "models.mount" in step.get("names", ()) for step in others)


@pytest.mark.parametrize(
    "volume",
    [
        Volume("models", "/models", "none", "/scratch/models", ("bind",)),
        Volume("models", "/scratch/models", "nfs4", "filer:/export/models"),
    ],
)
def test_volume_below_a_head_export_is_mounted_after_it(volume: Volume) -> None:
    cluster = replace(builders.cluster(2, provider=SSH), storage=StorageFolders(volumes=(MODELS_2, volume)))
    site = replace(builders.site(cluster), own=OwnedSite(nfs=("/scratch",)))
    unit = volume_mounts.unit_name(volume.path)
    desired = DesiredMachine.build({}, {}, units_by_role(cluster, site)["node"])
    stages = steps_by_stage(machine_changes("x", desired, NOT_OBSERVED), desired, {}, fresh=True)
    assert [step["names"] for step in stages["outside"]] == [["models2.mount"]]
    mounts = [step for step in stages["node"] if any(name.endswith(".mount") for name in step.get("names", ()))]
    assert [step["names"][-1] for step in mounts] == ["scratch.mount", unit]
    assert [step.get("may_fail", False) for step in mounts] == [False, True]
    assert mounts[1]["names"] == [unit], "nothing else may fail with it"

    local = replace(site, own=OwnedSite())
    (one,) = (one for one in units_by_role(cluster, local)["node"] if one.name == unit)
    assert one.stage == "outside", "every machine has /scratch already"


def test_quotas_are_set_after_the_controller_is_up_and_may_fail() -> None:
    data = {"path": "/home", "limit": 1 << 30, "first_project": 5, "uids": {"ann": 7}, "limits": {"/home": 1 << 30}}
    changes = [Change("quota.set", "lab-head", "/home", "quota of ann: 1.0 GiB each", data=data)]
    stages = steps_by_stage(changes, DesiredMachine.build({}, {}, ()), {}, fresh=False)
    assert list(stages) == ["outside"]
    (step,) = stages["outside"]
    assert (step["op"], step["may_fail"], step["path"], step["limit"]) == ("quotas", True, "/home", 1 << 30)
    assert stage_timeout_s("outside", [step]) > 6 * 3600
