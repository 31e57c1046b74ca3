"""An owned machine receives its first setup steps in the right order."""

from __future__ import annotations

import base64
import io
import tarfile
from dataclasses import replace

import pytest

from headway.catalog.node_images import slurm_release
from headway.catalog.providers import LOCAL, SSH
from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.cluster.desired_state import build_desired_state
from headway.cluster.machine_steps import DAEMONS, stage_timeout_s, steps_by_stage
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import NOT_OBSERVED, ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.site import OwnedSite
from headway.domain.machines.systemd_unit import Unit
from headway.domain.provider_traits import ProviderTraits
from headway.domain.storage.folders import Dataset, StorageFolders
from headway.images import packages, recipe
from headway.render.ha import slurm_state_folder
from headway.render.system import daemon_units, volume_mounts
from tests.support.clusters import builders

HOSTS = "/etc/hosts"
WANTED = DesiredMachine.build(
    {HOSTS: File("10.0.0.1 lab-head\n", block=True)},
    {},
    (Unit("slurmd.service", stage="node"),),
    packages=("slurmd", "munge"),
    parts="new",
)
SEEN = ObservedMachine(
    files={HOSTS: ObservedFile(WANTED.digests[HOSTS], 0o644, "root", "root", 1.0)},
    units={"slurmd.service": ObservedUnit(True, True, 2.0, 7, WANTED.loaded["slurmd.service"])},
    managed=(HOSTS,),
    hostname="lab-1-1",
    parts="new",
)


def kinds(seen: ObservedMachine) -> list[str]:
    return [change.kind for change in machine_changes("lab-1-1", WANTED, seen)]


def test_configured_machine_needs_no_changes() -> None:
    assert kinds(SEEN) == []


def test_bare_machine_keeps_files_then_gets_packages_and_parts() -> None:
    assert kinds(NOT_OBSERVED)[:4] == ["file.keep", "package.install", "parts.make", "machine.name"]
    stages = steps_by_stage(machine_changes("lab-1-1", WANTED, NOT_OBSERVED), WANTED, {}, fresh=True)
    assert [step["op"] for step in stages["software"]] == ["keep", "packages", "parts"]
    assert next(iter(stages)) == "software"
    packages = stages["software"][1]
    assert packages["names"] == ["slurmd", "munge"]
    assert set(packages["keep_off"]) == set(DAEMONS) - {"slurmd.service"}
    ops = [step["op"] for step in stages["base"]]
    assert ops.index("file") < ops.index("name")  # sudo looks names up


def test_source_folder_of_a_mount_is_created_before_the_mount() -> None:
    shown, other = "/scratch/.headway/lab/datasets/versions/tiny", "/scratch/ann"
    storage = StorageFolders(datasets=(Dataset("tiny", shown, "/datasets/tiny", versioned=True),))
    cluster = replace(builders.cluster(2, provider=SSH), storage=storage)
    site = replace(builders.site(cluster), own=OwnedSite())
    goal = build_desired_state(cluster, site, {})
    assert (shown, "root", 0o755) in goal.roles["head"].dirs
    files = volume_mounts.files(cluster, site, head=True)
    desired = DesiredMachine.build(
        files, {}, (Unit("datasets-tiny.mount"),), dirs=((other, "ann", 0o700), (shown, "root", 0o755))
    )
    base = steps_by_stage(machine_changes("lab-head", desired, NOT_OBSERVED), desired, {}, fresh=True)["base"]
    order = [step.get("path") or step["names"][0] for step in base if step["op"] in ("dir", "units")]
    assert order == [shown, "datasets-tiny.mount", other]


def test_file_at_a_new_managed_path_is_kept_first() -> None:
    more = replace(
        WANTED, files={**WANTED.files, "/etc/motd": File("hello\n")}, digests={**WANTED.digests, "/etc/motd": "d"}
    )
    assert "file.keep" in [change.kind for change in machine_changes("lab-1-1", more, SEEN)]


def test_missing_packages_are_counted_in_the_change() -> None:
    (change,) = machine_changes("lab-1-1", WANTED, replace(SEEN, missing=("munge",)))
    assert (change.kind, change.why) == ("package.install", "1 of 2 are missing")


def test_parts_of_another_version_are_rebuilt() -> None:
    assert kinds(replace(SEEN, parts="old")) == ["parts.make"]


def test_wrong_hostname_is_corrected() -> None:
    assert kinds(replace(SEEN, hostname="rack7")) == ["machine.name"]


def test_machine_from_an_image_needs_no_packages_parts_or_name() -> None:
    wanted = replace(WANTED, packages=(), parts="")
    seen = replace(SEEN, hostname="", parts="")
    assert list(machine_changes("lab-1-1", wanted, seen)) == []


def test_packages_for_role_match_the_image() -> None:
    head, node = (set(packages.packages_for_role("debian13", role, nfs=False)) for role in ("head", "node"))
    nfs = {"nfs-common", "nfs-kernel-server"}  # only for clusters whose head exports folders
    listed = set(recipe.get_recipe("debian12").packages) - nfs  # that of debian13 has JupyterLab's too
    assert listed <= head
    assert {"slurmd", "munge", "libpam-slurm-adopt", "nftables"} <= node
    assert not node & {"mariadb-server", "slurmctld", "slurmdbd", "prometheus"}
    assert "nfs-kernel-server" in packages.packages_for_role("debian12", "head", nfs=True)
    assert "nfs-common" in packages.packages_for_role("debian12", "node", nfs=True)


def test_parts_archive_is_complete_with_a_stable_digest() -> None:
    archive, digest = recipe.own_parts_archive()
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        names = set(packed.getnames())
        assert packed.getmember("bin/seff").mode == 0o755
    assert {
        "build_parts.sh",
        "spank/container.c",
        "pam/job_tmp.c",
        "spank/job_processes.h",
        "container/__main__.py",
        "bin/seff",
        "bin/torchrun",
        "torch-without-libuv.sh",
    } <= names
    assert recipe.own_parts_archive()[1] == digest


@pytest.mark.parametrize("role", ["head", "node"])
def test_agent_and_monitoring_start_after_slurm(role: str) -> None:
    cluster = builders.cluster(2)
    goal = build_desired_state(cluster, builders.site(cluster), {})
    name = cluster.head if role == "head" else cluster.slot_names[0]
    desired = goal.roles[cluster.role_of(name)]
    secrets = {file.secret: base64.b64encode(b"key").decode() for file in desired.files.values() if file.secret}
    stages = steps_by_stage(machine_changes(name, desired, NOT_OBSERVED), desired, secrets, fresh=True)
    starts = {stage: [step["names"] for step in steps if step["op"] == "units"] for stage, steps in stages.items()}
    if role == "head":
        assert list(starts)[-1] == "monitoring"
        assert starts["controller"] == [["slurmctld.service"], ["slurmrestd.service", "headway-rest.socket"]]
        assert "prometheus.service" in starts["monitoring"][0]
    else:
        assert starts["node"] == [["slurmd.service"], ["headway-agent.service"]]


CONTROLLER = Unit("slurmctld.service", restart_on=(slurm_state_folder.PROGRAM,), stage="controller")
RUNS = ObservedUnit(True, True, 2.0, 7, "")


@pytest.mark.parametrize("seen", [NOT_OBSERVED, ObservedMachine(units={CONTROLLER.name: RUNS}, managed=("/etc/motd",))])
def test_controller_start_has_time_to_copy_a_large_queue(seen: ObservedMachine) -> None:
    desired = DesiredMachine.build({slurm_state_folder.PROGRAM: File("#!/bin/sh\n", 0o755)}, {}, (CONTROLLER,))
    steps = steps_by_stage(machine_changes("lab-head", desired, seen), desired, {}, fresh=False)["controller"]
    start = steps[0].get("take_up", steps[0])
    assert start["names"] == ["slurmctld.service"]
    assert slurm_state_folder.START_S < start["timeout_s"] < stage_timeout_s("controller", steps)


def test_controller_start_without_state_copy_has_a_short_timeout() -> None:
    desired = DesiredMachine.build({}, {}, (CONTROLLER,))
    steps = steps_by_stage(machine_changes("lab-head", desired, NOT_OBSERVED), desired, {}, fresh=False)["controller"]
    assert stage_timeout_s("controller", steps) == 300
    assert stage_timeout_s("software", []) > 3600


@pytest.mark.parametrize(("provider", "given"), [(SSH, True), (LOCAL, False)])
def test_systemd_start_timeout_is_raised_on_owned_machines(provider: ProviderTraits, given: bool) -> None:
    cluster = builders.cluster(provider=provider)
    files = daemon_units.controller_units(cluster, slurm_release(cluster.slurm_version), cluster.head, around="")
    text = files[daemon_units.drop_in("slurmctld.service")].text
    assert (f"\nTimeoutStartSec={slurm_state_folder.START_S}\n" in text) is given
