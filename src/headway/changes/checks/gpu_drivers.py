"""Decides which owned machines get NVIDIA's driver, and what keeps it from being installed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.catalog.advisories import unfixed_advisories
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_driver import GpuDriver
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import DetectedHardware, Survey
from headway.domain.slurm.hostlist import compress

_TOOLKIT = "nvidia-container-toolkit"
_IN_SERVICE = frozenset(("slurmd", "headway-machine"))  # units of a node that may run jobs


def driver_is_due(driver: GpuDriver, survey: Survey) -> bool:
    """Returns whether the machine has GPUs and lacks the wanted driver, loaded and with libraries of its version."""
    there = survey.driver
    if not driver.install or not survey.found.gpus:
        return False
    silent = len(survey.found.gpus) > len(survey.found.usable_gpus)
    return silent or not driver.is_met_by(there.loaded) or there.libraries != there.loaded


def drivers_to_install(
    cluster: Cluster, surveys: Mapping[str, Survey], claimed: Mapping[str, DetectedHardware]
) -> tuple[str, ...]:
    """Returns the nodes that an apply installs the driver on: those that join. `claimed`: the stored hardware of machines
    that the cluster has already; one without usable GPUs was claimed by an apply that did not get to its driver."""
    return tuple(name for name in _due(cluster, surveys) if _joins(surveys[name], claimed.get(name)))


def drivers_to_roll(
    cluster: Cluster, surveys: Mapping[str, Survey], claimed: Mapping[str, DetectedHardware]
) -> tuple[str, ...]:
    """Returns the nodes of the cluster whose driver a rollout replaces."""
    return tuple(name for name in _due(cluster, surveys) if not _joins(surveys[name], claimed.get(name)))


def _due(cluster: Cluster, surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Yields the nodes that lack the driver. Heads keep theirs: jobs have no GPU of theirs."""
    for name in cluster.slot_names:
        if name in surveys and driver_is_due(cluster.gpu_driver, surveys[name]):
            yield name


def _joins(survey: Survey, claimed: DetectedHardware | None) -> bool:
    return (claimed is None or not claimed.usable_gpus) and not survey.units & _IN_SERVICE


def driver_problems(cluster: Cluster, survey: Survey, claimed: DetectedHardware | None = None) -> Iterator[HostProblem]:
    """Yields what keeps the driver of one machine from working, or from being installed. What only a rollout would meet
    stops no apply. `claimed`: the machine's stored hardware, if the cluster has it already."""
    silent = len(survey.found.gpus) - len(survey.found.usable_gpus)
    if survey.machine in cluster.heads or not driver_is_due(cluster.gpu_driver, survey):
        if silent and survey.machine not in cluster.heads:
            what = f"has {silent} NVIDIA GPU{'s' * (silent != 1)} without a driver{_why_silent(survey)}"
            fix = "install NVIDIA's driver, or give gpu: {driver: install}: without it Slurm has no GPU of the machine"
            yield _problem(survey, what, fix, fatal=False)
        return
    fatal = _joins(survey, claimed)
    if not survey.packages:
        yield _problem(
            survey,
            f"runs {survey.system_name}, where Headway can't install NVIDIA's driver",
            "install it there, and leave gpu: {driver: install} out",
            fatal=fatal,
        )
    if survey.driver.secure_boot:
        yield _problem(
            survey,
            "starts with Secure Boot, which refuses kernel modules that are built on the machine",
            "disable Secure Boot, or install a signed driver yourself and leave gpu: {driver: install} out",
            fatal=fatal,
        )
    if survey.driver.nvswitches and cluster.gpu_driver.repository is None and survey.system.startswith("debian"):
        yield _problem(
            survey,
            f"has {survey.driver.nvswitches} NVSwitches, whose fabric manager Debian does not have",
            "give gpu.repository: NVIDIA's repository has it",
            fatal=fatal,
        )


def driver_notes(
    cluster: Cluster, surveys: Mapping[str, Survey], claimed: Mapping[str, DetectedHardware]
) -> Iterator[str]:
    """Yields sentences for a plan: each driver that is replaced, by what and how; drivers with known
    vulnerabilities."""
    driver = cluster.gpu_driver
    groups: dict[tuple[str, str, bool], list[str]] = {}
    due = (drivers_to_install(cluster, surveys, claimed), drivers_to_roll(cluster, surveys, claimed))
    for when, names in enumerate(due):
        for name in names:
            key = driver_change(driver, surveys[name]), _reboot(surveys[name]), bool(when)
            groups.setdefault(key, []).append(name)
    for (change, reboot, in_service), machines in groups.items():
        how = (
            f"headway roll {cluster.name} replaces it node by node, once each node's jobs have ended"
            if in_service
            else "one machine first, then the others"
        )
        yield f"{compress(machines)}: {change}; {how}; {reboot}"
    lacking = [
        name
        for name in cluster.slot_names
        if driver.dcgm and name in surveys and name not in due[0] + due[1] and _lacks_dcgm(surveys[name])
    ]
    if lacking:
        yield (
            f"{compress(lacking)}: the driver stays, so dcgm: true installs nothing there, because DCGM comes only with "
            "another driver; install the package datacenter-gpu-manager-4-cuda13 or -cuda12 there, and start nvidia-dcgm"
        )
    yield from _vulnerable(surveys)


def _reboot(survey: Survey) -> str:
    """Returns whether the machine is rebooted for its driver, as a clause."""
    there = survey.driver
    if not there.loaded and not there.nouveau:
        return "no reboot, because its kernel holds no other driver"
    holds = "nouveau" if there.nouveau else f"driver {there.loaded}"
    return f"with a reboot, unless its kernel can unload {holds}"


def _lacks_dcgm(survey: Survey) -> bool:
    return bool(survey.found.gpus) and not survey.driver.dcgm


def driver_change(driver: GpuDriver, survey: Survey) -> str:
    """Returns the driver that the machine has and the one that it gets, as a clause."""
    there = survey.driver
    now = f"NVIDIA driver {there.loaded}" if there.loaded else f"no NVIDIA driver{_why_silent(survey)}"
    if there.loaded and there.libraries not in ("", there.loaded):
        now += f" with libraries of {there.libraries}"
    offered = there.offered if driver.is_met_by(there.offered) and driver.repository is None else ""
    then = offered or (f"branch {driver.branch}" if driver.branch else "the newest")
    return f"{now} becomes {then}, from {driver.source}"


def _why_silent(survey: Survey) -> str:
    """Returns why the kernel has no driver of NVIDIA, as the end of a clause; "" if that is not known."""
    there = survey.driver
    if there.nouveau:
        return " (nouveau holds them)"
    if there.on_disk and not there.loaded:
        return f" (module {there.on_disk} is installed and not loaded{', Secure Boot is on' * there.secure_boot})"
    if there.libraries and not there.loaded:
        return f" (libraries {there.libraries} are installed, no module for kernel {survey.kernel})"
    return ""


def _vulnerable(surveys: Mapping[str, Survey]) -> Iterator[str]:
    machines: dict[tuple[str, str, str], list[str]] = {}
    for name, survey in surveys.items():
        for program, called, version in (
            ("nvidia-driver", "NVIDIA driver", survey.driver.loaded),
            (_TOOLKIT, "NVIDIA's container toolkit", survey.packages.get(_TOOLKIT, "")),
        ):
            if version:
                machines.setdefault((program, called, version), []).append(name)
    for (program, called, version), names in machines.items():
        for row in unfixed_advisories(program, version):
            more = f" and {len(row.cve) - 1} more" if len(row.cve) > 1 else ""
            yield (
                f"{called} {version} on {compress(names)} is vulnerable to {row.cve[0]}{more}: it lets {row.lets}; "
                f"update to {row.newest}; see {row.source}"
            )


def _problem(survey: Survey, what: str, fix: str, *, fatal: bool) -> HostProblem:
    return HostProblem(f"{survey.machine} ({survey.address}) {what}", fix, fatal=fatal)
