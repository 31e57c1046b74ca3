"""Decides which machines run in a system container on their host, and what a host needs for that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.catalog.node_images import IMAGES
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import Survey
from headway.domain.slurm.hostlist import compress


@dataclass(frozen=True)
class DeclaredHosts:
    """What the cluster file and earlier applies say. `claimed`: machines that the cluster has already; `contained`: those
    of them that run in containers."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    contained: frozenset[str] = frozenset()

    def container_port(self, name: str) -> int:
        """Returns the SSH port of the machine in its container."""
        return self.hosts[name].container_port if name in self.hosts else 2222


def runs_in_container(cluster: Cluster, survey: Survey, known: DeclaredHosts) -> bool:
    """Returns whether the machine runs in a container: as it does now, else as the cluster file says, else if its host
    runs another system than the image."""
    name = survey.machine
    if name in known.claimed:
        return name in known.contained
    wanted = known.hosts[name].run_in if name in known.hosts else ""
    return wanted == "container" if wanted else survey.system != cluster.image


def container_runtime(survey: Survey) -> str:
    """Returns the program that runs the container: podman, or systemd-nspawn where podman is missing; "" for neither.
    SELinux is only known to let podman work, and crun, podman's default, to refuse a host with both cgroup versions."""
    if "podman" in survey.container_runtimes and (not survey.cgroup_v1 or "runc" in survey.container_runtimes):
        return "podman"
    usable = "systemd-nspawn" in survey.container_runtimes and not survey.selinux_enforcing
    return "systemd-nspawn" if usable else ""


def container_problems(cluster: Cluster, survey: Survey, known: DeclaredHosts) -> Iterator[HostProblem]:
    """Yields what keeps the node image from running on this host, and what was not tested."""
    if not survey.systemd:
        yield _problem(survey, "does not run systemd", "use a host that systemd has started")
    if not container_runtime(survey):
        what, fix = _no_runtime(survey, cluster.image)
        # The machine of a host that is claimed runs already, and its next start says what fails.
        yield _problem(survey, what, fix, fatal=not (survey.machine in known.contained and survey.container_runtimes))
    elif survey.cgroup_v1:
        runs = IMAGES[cluster.image].runs_on_cgroup_v1
        yield _problem(
            survey,
            "has cgroup v1, which systemd no longer supports from version 258 on",
            f"boot it with systemd.unified_cgroup_hierarchy=1{' before its next upgrade' if runs else ''}",
            fatal=not runs,
        )
    port = known.container_port(survey.machine)
    if survey.machine not in known.claimed and port in survey.listening:
        yield _problem(
            survey,
            f"has a program listening on port {port}, which SSH of the machine in its container needs",
            "give another container_port in hosts",
        )
    if survey.selinux_enforcing:
        yield _problem(
            survey,
            "enforces SELinux, under which containers of Headway are untested",
            "if the container does not start, look for denials: ausearch -m avc",
            fatal=False,
        )


def switch_problems(survey: Survey, known: DeclaredHosts) -> Iterator[HostProblem]:
    """Yields a problem if the cluster file now says otherwise than when the cluster took the machine."""
    wanted = known.hosts[survey.machine].run_in if survey.machine in known.hosts else ""
    now = "container" if survey.machine in known.contained else "native"
    if survey.machine in known.claimed and wanted not in ("", now):
        yield _problem(
            survey,
            f"runs with run_in: {now}, and hosts has run_in: {wanted}",
            "remove the host from hosts and apply; then add it again",
        )


def container_notes(image: str, surveys: Mapping[str, Survey], contained: frozenset[str]) -> tuple[str, ...]:
    """Returns one sentence per kind of host: which machines run in containers, by which program and why."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, survey in surveys.items():
        if name in contained and container_runtime(survey):
            system = "" if survey.system == image else survey.system_name
            groups.setdefault((system, container_runtime(survey)), []).append(name)
    return tuple(
        f"{compress(names)}: node image {image} in a system container ({runtime}), {_why(system, len(names))}"
        for (system, runtime), names in groups.items()
    )


def _why(system: str, count: int) -> str:
    return f"because the host{'s run' if count > 1 else ' runs'} {system}" if system else "as hosts says"


def _no_runtime(survey: Survey, image: str) -> tuple[str, str]:
    """Returns why no program there can run the container, and what to do."""
    have, debian = survey.container_runtimes, IMAGES[image].debian
    if survey.system == image:
        why, other = f"shall run {debian} in a container, as hosts says, ", ", or remove run_in: container from hosts"
    else:
        why = f"runs {survey.system_name}, so {debian} runs in a container there, "
        other = f", or give image: {survey.system} if all machines run that" if survey.system in IMAGES else ""
    if "podman" in have:  # and nothing else of use
        return f"{why}and podman has no runc, which it needs on a host with cgroup v1", f"install runc there{other}"
    if "systemd-nspawn" in have:
        return f"{why}and systemd-nspawn can't do that on a host that enforces SELinux", f"install podman there{other}"
    install = "podman and runc" if survey.cgroup_v1 else "podman"
    return f"{why}and it has neither podman nor systemd-nspawn", f"install {install} there{other}"


def _problem(survey: Survey, what: str, fix: str, *, fatal: bool = True) -> HostProblem:
    return HostProblem(f"{survey.machine} ({survey.address}) {what}", fix, fatal=fatal)
