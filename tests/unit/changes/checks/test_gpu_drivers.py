"""An apply installs the GPU driver only on machines that are not in service, a rollout on the others; what keeps it from
working is told before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.checks.gpu_drivers import (
    driver_notes,
    driver_problems,
    drivers_to_install,
    drivers_to_roll,
)
from headway.domain.machines.gpu_driver import DetectedDriver, GpuDriver, PackageRepository
from headway.domain.machines.survey import DetectedGpu, DetectedHardware, Survey
from tests.support.clusters import builders

GPUS = tuple(DetectedGpu("NVIDIA L4", 23034, f"0000:0{n}:00.0", (), n) for n in range(2))
SILENT = tuple(replace(gpu, product="", minor=-1) for gpu in GPUS)
SOUND = Survey(
    "lab-1-1", "10.9.0.11", DetectedHardware(8, 1, 8, 1, 32_000, gpus=GPUS), "debian13", "Debian 13", "6.12", "rack", 0.0,
    packages={"dpkg": "1.22"}, driver=DetectedDriver(loaded="580.95.05", on_disk="580.95.05", libraries="580.95.05"),
)  # fmt: skip
BARE = replace(SOUND, found=replace(SOUND.found, gpus=SILENT), driver=DetectedDriver())
KEEP = builders.cluster(nodes=3, spares=0, provider=SSH)
NVIDIA = PackageRepository("https://packages.example.org/cuda", "/", (), ("key",))
INSTALL = replace(KEEP, gpu_driver=GpuDriver(install=True, branch="580", repository=NVIDIA))


def one(survey: Survey, cluster: Any = INSTALL, claimed: Any = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what is done about the machine at an apply, and at a rollout."""
    surveys = {survey.machine: survey}
    known = claimed or {}
    return drivers_to_install(cluster, surveys, known), drivers_to_roll(cluster, surveys, known)


def with_driver(survey: Survey, **fields: Any) -> Survey:
    return replace(survey, driver=replace(survey.driver, **fields))


@pytest.mark.parametrize(
    ("survey", "due"),
    [
        (SOUND, False),
        (BARE, True),
        (with_driver(SOUND, loaded="570.124.06", libraries="570.124.06"), True),
        (with_driver(SOUND, libraries="570.124.06"), True),  # an upgrade without a reboot
        (replace(BARE, found=replace(BARE.found, gpus=())), False),  # a CPU node
    ],
)
def test_driver_is_installed_where_gpus_lack_the_wanted_one(survey: Survey, due: bool) -> None:
    assert one(survey) == ((("lab-1-1",), ()) if due else ((), ()))
    assert one(survey, KEEP) == ((), ())
    for unit in ("slurmd", "headway-machine"):
        assert one(replace(survey, units=frozenset([unit]))) == (((), ("lab-1-1",)) if due else ((), ()))


def test_apply_leaves_heads_and_nodes_that_had_a_driver_to_others() -> None:
    assert one(replace(BARE, machine="lab-head")) == ((), ())
    assert one(BARE, claimed={"lab-1-1": BARE.found}) == (("lab-1-1",), ()), "an apply was killed before its driver"
    sick = replace(BARE, found=replace(BARE.found, gpus=(GPUS[0], SILENT[1])))
    assert one(sick, claimed={"lab-1-1": SOUND.found}) == ((), ("lab-1-1",)), "its slurmd may be down for a moment"


def test_what_only_a_rollout_would_meet_stops_no_apply() -> None:
    for survey, claimed in (
        (replace(with_driver(BARE, secure_boot=True), units=frozenset(["slurmd"])), None),
        (with_driver(BARE, secure_boot=True), SOUND.found),
    ):
        (problem,) = driver_problems(INSTALL, survey, claimed)
        assert not problem.fatal


def test_kept_driver_that_is_missing_is_a_warning_with_its_reason() -> None:
    for driver, why in (
        (DetectedDriver(), "without a driver;"),
        (DetectedDriver(nouveau=True), "without a driver (nouveau holds them);"),
        (
            DetectedDriver(on_disk="580.95.05", secure_boot=True),
            "without a driver (module 580.95.05 is installed and not loaded, Secure Boot is on);",
        ),
        (
            DetectedDriver(libraries="580.95.05"),
            "without a driver (libraries 580.95.05 are installed, no module for kernel 6.12);",
        ),
    ):
        (problem,) = driver_problems(KEEP, replace(BARE, driver=driver))
        assert why in f"{problem.what};"
        assert not problem.fatal
        assert "gpu: {driver: install}" in problem.fix


@pytest.mark.parametrize(
    ("survey", "cluster", "why"),
    [
        (replace(BARE, packages={}), INSTALL, "where Headway can't install NVIDIA's driver"),
        (with_driver(BARE, secure_boot=True), INSTALL, "starts with Secure Boot"),
        (
            with_driver(BARE, nvswitches=4),
            replace(INSTALL, gpu_driver=GpuDriver(install=True)),
            "has 4 NVSwitches, whose fabric manager Debian does not have",
        ),
    ],
)
def test_what_prevents_an_installation_stops_the_apply(survey: Survey, cluster: Any, why: str) -> None:
    (problem,) = driver_problems(cluster, survey)
    assert why in problem.what
    assert problem.fatal


def test_ubuntu_has_a_fabric_manager_of_its_own() -> None:
    survey = replace(with_driver(BARE, nvswitches=4), system="ubuntu24")
    assert not list(driver_problems(replace(INSTALL, gpu_driver=GpuDriver(install=True)), survey))


def test_machine_that_can_get_the_driver_has_no_problem() -> None:
    assert not list(driver_problems(INSTALL, with_driver(BARE, nvswitches=4)))
    assert not list(driver_problems(INSTALL, SOUND))


def test_plan_says_versions_now_and_then_and_how_they_change() -> None:
    old = with_driver(SOUND, loaded="570.124.06", libraries="570.124.06")
    surveys = {
        "lab-1-1": BARE,
        "lab-1-2": replace(BARE, machine="lab-1-2"),
        "lab-1-3": replace(old, machine="lab-1-3", units=frozenset(["slurmd"])),
    }
    new, roll = [note for note in driver_notes(INSTALL, surveys, {}) if "vulnerable" not in note]
    assert new.startswith(
        "lab-1-[1-2]: no NVIDIA driver becomes branch 580, from https://packages.example.org/cuda; one machine"
    )
    assert roll.startswith(
        "lab-1-3: NVIDIA driver 570.124.06 becomes branch 580, from https://packages.example.org/cuda;"
    )
    assert new.endswith("one machine first, then the others; no reboot, because its kernel holds no other driver")
    assert "headway roll lab replaces it node by node" in roll
    assert roll.endswith("; with a reboot, unless its kernel can unload driver 570.124.06")
    own = replace(INSTALL, gpu_driver=GpuDriver(install=True))
    (note,) = driver_notes(own, {"lab-1-1": with_driver(BARE, offered="550.163.01")}, {})
    assert "no NVIDIA driver becomes 550.163.01, from the machine's distribution" in note


@pytest.mark.parametrize(
    ("version", "fix"), [("1.17.7-1", "1.17.8"), ("1.16.1-1", "1.16.2"), ("1.17.8-1", ""), ("1.18.2-1", "")]
)
def test_vulnerable_container_toolkit_is_named(version: str, fix: str) -> None:
    survey = replace(SOUND, packages={**SOUND.packages, "nvidia-container-toolkit": version})
    notes = " ".join(driver_notes(KEEP, {"lab-1-1": survey}, {}))
    assert f"NVIDIA's container toolkit {version} on lab-1-1 is vulnerable to CVE-" in notes if fix else notes == ""
    assert f"update to {fix};" in notes or not fix


def test_plan_says_where_dcgm_is_asked_for_and_not_installed() -> None:
    cluster = replace(INSTALL, gpu_driver=replace(INSTALL.gpu_driver, dcgm=True))
    surveys = {
        "lab-1-1": SOUND,
        "lab-1-2": replace(with_driver(SOUND, dcgm=True), machine="lab-1-2"),
        "lab-1-3": replace(BARE, machine="lab-1-3"),  # gets both
    }
    (note,) = [note for note in driver_notes(cluster, surveys, {}) if "dcgm" in note]
    assert note.startswith("lab-1-1: the driver stays, so dcgm: true installs nothing there")
    assert "install the package datacenter-gpu-manager-4-cuda13" in note
    assert not [note for note in driver_notes(INSTALL, surveys, {}) if "dcgm" in note]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (
            "550.144.03",
            "is vulnerable to CVE-2025-23244: it lets a user without privileges gain those of root; update to 550.163.01",
        ),
        ("535.216.03", "is vulnerable to CVE-2025-23244"),
        ("550.163.01", ""),
        ("580.95.05", ""),
    ],
)
def test_vulnerable_driver_is_named(version: str, found: str) -> None:
    notes = " ".join(driver_notes(KEEP, {"lab-1-1": with_driver(SOUND, loaded=version, libraries=version)}, {}))
    assert found in notes if found else notes == ""
