"""Hosts with another system than the node image run their machine in a container; what prevents that is told before
anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.checks.host_containers import (
    RunIn,
    container_notes,
    container_problems,
    container_runtime,
    runs_in_container,
    switch_problems,
)
from headway.domain.cluster import Host
from headway.domain.machines.survey import DetectedHardware, Survey
from tests.support.clusters import builders

LAB = builders.cluster(nodes=2, spares=0, provider=SSH)
UBUNTU = Survey(
    "lab-1-1", "10.9.0.11", DetectedHardware(8, 1, 8, 1, 32_000), "ubuntu24", "Ubuntu 24.04.1 LTS", "6.8", "rack", 0.0,
    container_runtimes=("podman", "systemd-nspawn"),
)  # fmt: skip
DEBIAN = replace(UBUNTU, system="debian13", system_name="Debian GNU/Linux 13 (trixie)")


def wanted(run_in: str = "", port: int = 2222) -> RunIn:
    return RunIn({"lab-1-1": Host("lab-1-1", "10.9.0.11", run_in=run_in, container_port=port)})


@pytest.mark.parametrize(
    ("survey", "run_in", "contained"),
    [
        (UBUNTU, "", True),
        (DEBIAN, "", False),
        (UBUNTU, "native", False),
        (DEBIAN, "container", True),
    ],
)
def test_cluster_file_decides_and_otherwise_the_host_system(survey: Survey, run_in: str, contained: bool) -> None:
    assert runs_in_container(LAB, survey, wanted(run_in)) is contained


def test_claimed_machine_stays_as_it_is_and_a_switch_is_refused() -> None:
    known = replace(wanted("native"), claimed=frozenset(["lab-1-1"]), contained=frozenset(["lab-1-1"]))
    assert runs_in_container(LAB, UBUNTU, known)
    (problem,) = switch_problems(UBUNTU, known)
    assert problem.what == "lab-1-1 (10.9.0.11) runs with run_in: container, and hosts has run_in: native"
    assert "remove the host from hosts and apply" in problem.fix
    assert not list(switch_problems(UBUNTU, replace(known, hosts=wanted("container").hosts)))


def test_suitable_host_has_no_problem() -> None:
    assert not list(container_problems(LAB, UBUNTU, wanted()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "aarch64"}, "has architecture aarch64, and node images exist for x86_64 only"),
        ({"systemd": False}, "does not run systemd"),
        (
            {"container_runtimes": ()},
            "runs Ubuntu 24.04.1 LTS, so Debian 13 runs in a container there, and it has neither",
        ),
        (
            {"container_runtimes": ("systemd-nspawn",), "selinux_enforcing": True},
            "systemd-nspawn can't do that on a host that enforces SELinux",
        ),
        ({"listening": frozenset([2222])}, "has a program listening on port 2222"),
    ],
)
def test_unsuitable_host_stops_an_apply(changes: dict[str, Any], message: str) -> None:
    fatal = [problem for problem in container_problems(LAB, replace(UBUNTU, **changes), wanted()) if problem.fatal]
    assert [message in problem.what for problem in fatal] == [True]
    assert fatal[0].fix


def test_debian_host_without_a_runtime_may_also_change_the_image() -> None:
    other = replace(UBUNTU, system="debian12", system_name="Debian GNU/Linux 12 (bookworm)", container_runtimes=())
    (problem,) = container_problems(LAB, other, wanted())
    assert problem.fix == "install podman there, or give image: debian12 if all machines run that"


def test_port_of_an_earlier_apply_is_the_own_one() -> None:
    known = replace(wanted(), claimed=frozenset(["lab-1-1"]), contained=frozenset(["lab-1-1"]))
    assert not list(container_problems(LAB, replace(UBUNTU, listening=frozenset([2222])), known))


def test_selinux_with_podman_is_only_a_warning() -> None:
    (problem,) = container_problems(LAB, replace(UBUNTU, selinux_enforcing=True), wanted())
    assert not problem.fatal
    assert "enforces SELinux" in problem.what


def test_podman_is_preferred_and_plan_says_what_runs_where() -> None:
    assert container_runtime(UBUNTU) == "podman"
    assert container_runtime(replace(UBUNTU, container_runtimes=("systemd-nspawn",))) == "systemd-nspawn"
    surveys = {name: replace(UBUNTU, machine=name) for name in LAB.machine_names}
    assert container_notes("debian13", surveys, frozenset(LAB.slot_names)) == (
        "lab-1-[1-2]: node image debian13 in a system container (podman), because the hosts run Ubuntu 24.04.1 LTS",
    )


def test_plan_says_that_the_cluster_file_asks_for_the_container() -> None:
    (note,) = container_notes("debian13", {"lab-1-1": DEBIAN}, frozenset(["lab-1-1"]))
    assert note.endswith("in a system container (podman), as hosts says")
