"""Hosts with another system than the node image run their machine in a container; what prevents that is told before
anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.checks.host_containers import (
    DeclaredHosts,
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
    container_runtimes=("podman", "runc", "systemd-nspawn"),
)  # fmt: skip
DEBIAN = replace(UBUNTU, system="debian13", system_name="Debian GNU/Linux 13 (trixie)")


def wanted(run_in: str = "", port: int = 2222) -> DeclaredHosts:
    return DeclaredHosts({"lab-1-1": Host("lab-1-1", "10.9.0.11", run_in=run_in, container_port=port)})


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
        ({"systemd": False}, "does not run systemd"),
        (
            {"container_runtimes": ()},
            "runs Ubuntu 24.04.1 LTS, so Debian 13 runs in a container there, and it has neither",
        ),
        (
            {"container_runtimes": ("systemd-nspawn",), "selinux_enforcing": True},
            "systemd-nspawn can't do that on a host that enforces SELinux",
        ),
        (
            {"container_runtimes": ("podman",), "cgroup_v1": True},
            "and podman has no runc, which it needs on a host with cgroup v1",
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


def test_host_of_the_same_system_without_a_runtime_may_also_run_natively() -> None:
    (problem,) = container_problems(LAB, replace(DEBIAN, container_runtimes=()), wanted("container"))
    assert problem.what == (
        "lab-1-1 (10.9.0.11) shall run Debian 13 in a container, as hosts says, and it has neither podman nor systemd-nspawn"
    )
    assert problem.fix == "install podman there, or remove run_in: container from hosts"


def test_systemd_nspawn_serves_where_podman_lacks_runc_on_cgroup_v1() -> None:
    v1 = replace(UBUNTU, container_runtimes=("podman", "systemd-nspawn"), cgroup_v1=True)
    assert container_runtime(v1) == "systemd-nspawn"
    assert container_runtime(replace(v1, container_runtimes=UBUNTU.container_runtimes)) == "podman"
    assert container_runtime(replace(v1, cgroup_v1=False)) == "podman"


def test_cgroup_v1_with_runc_is_only_a_warning() -> None:
    (problem,) = container_problems(LAB, replace(UBUNTU, cgroup_v1=True), wanted())
    assert not problem.fatal
    assert problem.what.endswith("has cgroup v1, which systemd no longer supports from version 258 on")
    assert "systemd.unified_cgroup_hierarchy=1" in problem.fix


def test_missing_runc_is_only_a_warning_where_the_machine_runs_already() -> None:
    v1 = replace(UBUNTU, container_runtimes=("podman",), cgroup_v1=True)
    known = replace(wanted(), claimed=frozenset(["lab-1-1"]), contained=frozenset(["lab-1-1"]))
    (problem,) = container_problems(LAB, v1, known)
    assert "podman has no runc" in problem.what
    assert not problem.fatal
    (problem,) = container_problems(LAB, replace(v1, container_runtimes=()), known)
    assert problem.fatal, "without any runtime the machine can't start again"


def test_cgroup_v1_stops_an_apply_of_an_image_whose_systemd_refuses_it() -> None:
    (problem,) = container_problems(replace(LAB, image="debian14"), replace(UBUNTU, cgroup_v1=True), wanted())
    assert problem.fatal
    assert problem.fix == "boot it with systemd.unified_cgroup_hierarchy=1"


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
