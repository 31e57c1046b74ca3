"""Surveys of owned machines lead to the right errors that stop an apply, the right notes, and the right hardware in
slurm.conf."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.checks.host_containers import DeclaredHosts
from headway.changes.checks.owned_machines import EarlierFindings, SurveyResult, evaluate_surveys
from headway.changes.checks.uid_conflicts import agreed_uids
from headway.domain.cluster import Host
from headway.domain.machines.survey import (
    DetectedGpu,
    DetectedHardware,
    DetectedMount,
    DetectedNic,
    Difference,
    MachineClaim,
    Survey,
)
from headway.domain.storage.folders import StorageFolders, Volume
from headway.render.slurm.gres_conf import gres_conf
from headway.render.slurm.hardware.node_hardware import gpu_type, hardware_of
from tests.support.clusters import builders

LAB = builders.cluster(nodes=2, spares=0, provider=SSH)
NAMES = (LAB.head, *LAB.slot_names)
GPUS = tuple(DetectedGpu("NVIDIA H100 80GB HBM3", 81559, f"0000:{n}b:00.0", (), n) for n in range(8))
MACHINE = DetectedHardware(128, 2, 64, 1, 2_040_000, 900_000, GPUS)
ONE = {
    "/home": DetectedMount("filer:/home", "nfs4", "7 1 4096"),
    "/scratch": DetectedMount("filer:/s", "nfs4", "9 1 4096"),
}
GOOD = Survey(
    "", "", MACHINE, "debian13", "Debian GNU/Linux 13 (trixie)", "6.12", "rack", 0.1, free_mib=90_000,
    packages={"nvidia-container-toolkit": "1.17"}, mounts=ONE, nfs_server=True, nfs_client=True, firewall=True,
)  # fmt: skip
NEW = EarlierFindings("me", {"alice": 20000}, {}, ())


def look(known: EarlierFindings = NEW, of: str = "", **changes: Any) -> SurveyResult:
    """All machines are good; the one named `of` (or every one) is changed."""
    surveys = {
        name: replace(GOOD, machine=name, address=f"10.9.0.{n}", **(changes if of in ("", name) else {}))
        for n, name in enumerate(NAMES, 10)
    }
    return evaluate_surveys(LAB, surveys, known)


def stops(survey: SurveyResult) -> str:
    return "\n".join(f"{problem.what}; {problem.fix}" for problem in survey.problems if problem.fatal)


def warns(survey: SurveyResult) -> str:
    return "\n".join(f"{problem.what}; {problem.fix}" for problem in survey.problems if not problem.fatal)


def test_suitable_machines_with_shared_folders_are_accepted() -> None:
    told = look()
    assert told.problems == ()
    assert told.nfs == ()
    assert set(told.found) == set(NAMES)
    assert told.differences == ()


def test_machine_without_controllers_of_cgroup_v2_stops_an_apply_that_takes_it() -> None:
    lacking = ("cpuset", "memory")
    (problem,) = look(of="lab-1-2", missing_controllers=lacking).problems
    assert problem.fatal
    assert problem.what == (
        "lab-1-2 (10.9.0.12) has cgroup v2 without the controllers cpuset and memory, by which Slurm limits jobs"
    )
    assert "systemd.unified_cgroup_hierarchy=1" in problem.fix
    claimed = replace(NEW, found={"lab-1-2": GOOD.found})
    assert not stops(look(claimed, of="lab-1-2", missing_controllers=lacking)), "it is a node already"


@pytest.mark.parametrize("system", ["debian13", "ubuntu24"])
def test_machine_of_another_architecture_stops_an_apply(system: str) -> None:
    """Whether it would run natively or in a container."""
    (problem,) = look(of="lab-1-2", architecture="aarch64", system=system, container_runtimes=("podman",)).problems
    assert problem.fatal
    grace = "(as NVIDIA's Grace: GH200, GB200, GB300)"
    assert problem.what == f"lab-1-2 (10.9.0.12) has architecture aarch64 {grace}, and Headway runs on x86_64 only"
    assert problem.fix == "leave the machine out"


def test_differences_between_plan_and_hardware_are_reported() -> None:
    small = replace(MACHINE, cpus=64, memory_mib=515_000, gpus=(replace(GPUS[0], product="NVIDIA A100-SXM4-40GB"),) * 2)
    assert look(of="lab-1-2", found=small).differences == (
        Difference("lab-1-2", "GPUs", "8 x h100", "2 x a100 (NVIDIA A100-SXM4-40GB)"),
        Difference("lab-1-2", "CPUs", "128", "64"),
        Difference("lab-1-2", "memory", "2,000 GiB", "503 GiB"),
    )


def test_missing_container_toolkit_is_reported_only_with_enroot() -> None:
    surveys = {name: replace(GOOD, machine=name, address="10.9.0.1", packages={}) for name in NAMES}
    for containers, said in (("builtin", False), ("", False), ("enroot", True)):
        told = evaluate_surveys(replace(LAB, containers=containers), surveys, NEW)
        assert ("has no NVIDIA container toolkit" in warns(told)) is said


def test_fabric_port_that_came_up_later_is_recorded() -> None:
    ports = tuple(DetectedNic(name, "InfiniBand", 400, up) for name, up in (("mlx5_0", True), ("mlx5_1", False)))
    first = replace(MACHINE, nics=ports)
    known = replace(NEW, found=dict.fromkeys(NAMES, first))
    both = replace(MACHINE, nics=tuple(replace(port, up=True) for port in ports))
    assert look(known, found=both).found["lab-1-1"] == both
    none = replace(MACHINE, nics=tuple(replace(port, up=False) for port in ports))
    assert look(known, found=none).found["lab-1-1"] == first, "repair the machine"


def test_gpus_without_a_driver_do_not_count() -> None:
    dark = replace(MACHINE, gpus=tuple(replace(gpu, product="", minor=-1) for gpu in GPUS))
    told = look(of="lab-1-1", found=dark)
    assert "lab-1-1 (10.9.0.11) has 8 NVIDIA GPUs without a driver" in warns(told)
    assert Difference("lab-1-1", "GPUs", "8 x h100", "none") in told.differences


def test_machine_of_another_cluster_is_refused() -> None:
    told = look(of="lab-1-1", claim=MachineClaim("prod", "me", "prod-2-7"))
    assert stops(told).startswith(
        "lab-1-1 (10.9.0.11) is held by cluster prod, as prod-2-7; headway down prod returns it"
    )
    other = look(of="lab-1-1", claim=MachineClaim("lab", "another server", "lab-1-1"))
    assert "cluster lab of another Headway server" in stops(other)


def test_own_claim_is_accepted_but_not_under_another_name() -> None:
    known = replace(NEW, found=dict.fromkeys(NAMES, MACHINE))
    ours = look(
        known,
        of="lab-1-1",
        claim=MachineClaim("lab", "me", "lab-1-1"),
        listening=frozenset((6818,)),
        units=frozenset(("slurmd",)),
    )
    assert stops(ours) == ""
    assert "is lab-1-2 of this cluster already" in stops(
        look(known, of="lab-1-1", claim=MachineClaim("lab", "me", "lab-1-2"))
    )
    gone = look(
        known, of="lab-1-1", claim=MachineClaim("lab", "me", "lab-9-1")
    )  # hosts has one fewer, and fewer places
    assert "is lab-9-1 of this cluster, and the file has no such node any more" in stops(gone)


def test_machine_with_too_little_memory_is_refused() -> None:
    told = look(of=LAB.head, found=replace(MACHINE, memory_mib=990))
    assert (
        stops(told) == "lab-head (10.9.0.10) has 990 MiB of memory, at least 1500 MiB are needed; use a larger machine"
    )


def test_other_operating_systems_are_refused_or_reported_as_untested() -> None:
    native = DeclaredHosts({name: Host(name, "", run_in="native") for name in NAMES})
    known = replace(NEW, run_in=native)
    stopped = stops(look(known, system="debian12"))
    assert "runs Debian 12, and image: debian13 is Debian 13; give image: debian12" in stopped
    untested = look(known, system="ubuntu24", system_name="Ubuntu 24.04")
    assert stops(untested) == ""
    assert "Ubuntu 24.04, which is untested; tested systems are Debian 13" in warns(untested)
    assert "no Debian packages" in stops(look(known, system="rocky9", system_name="Rocky Linux 9", packages={}))


def test_host_with_another_system_gets_a_container_and_its_own_slurm_packages_do_not_matter() -> None:
    ubuntu = look(
        of="lab-1-1", system="ubuntu24", system_name="Ubuntu 24.04", container_runtimes=("podman",),
        packages={"munge": "0.5.15-1"},
    )  # fmt: skip
    assert ubuntu.problems == ()
    assert ubuntu.contained == {"lab-1-1"}


def test_machine_with_running_slurm_mariadb_or_used_port_is_refused() -> None:
    slurm = look(of="lab-1-2", units=frozenset(("slurmd",)), slurm_cluster="old")
    assert "lab-1-2 (10.9.0.12) runs a Slurm of cluster old (slurmd)" in stops(slurm)
    assert "runs mariadb already" in stops(look(of=LAB.head, units=frozenset(("mariadb",))))
    assert "listening on port 6819" in stops(look(of="lab-1-1", listening=frozenset((6819, 22))))


def test_user_with_another_uid_on_the_machine_is_refused() -> None:
    assert "has its own user alice with uid 1000; the cluster gives uid 20000" in stops(look(users={"alice": 1000}))
    assert stops(look(users={"alice": 20000})) == ""


def test_uid_common_to_all_machines_is_adopted() -> None:
    def agreed(*known: dict[str, int]) -> dict[str, int]:
        return agreed_uids({str(n): replace(GOOD, users=users) for n, users in enumerate(known)}, ["alice", "bob"])

    assert agreed({"alice": 5001, "bob": 5002}, {"alice": 5001, "bob": 5002}) == {"alice": 5001, "bob": 5002}
    assert agreed({"alice": 5001, "bob": 5002}, {"alice": 5001}) == {"alice": 5001}, "one machine does not know bob"
    assert agreed({"alice": 1001}, {"alice": 1002}) == {}
    assert agreed({"alice": 999, "bob": 65534}) == {}, "the system's own"
    assert agreed({"alice": 5001, "bob": 5001}) == {}, "two names of one account"
    assert agreed() == {}


def test_uid_used_by_another_account_is_refused() -> None:
    assert "has uid 20000 as ubuntu, and the cluster gives it to alice" in stops(look(owners={20000: "ubuntu"}))
    assert look(owners={20000: "alice"}).problems == ()


def test_existing_home_of_another_uid_is_refused_or_warned_about() -> None:
    homes = {"/home/alice": 5001, "/scratch/alice": 20000}
    told = look(of=LAB.head, homes=homes)
    assert (
        "lab-head (10.9.0.10) has /home/alice, which belongs to uid 5001; the cluster gives alice uid 20000"
        in stops(told)
    )
    assert "/scratch" not in stops(told)
    late = look(replace(NEW, assigned_uids=frozenset({"alice"})), of=LAB.head, homes=homes)
    assert stops(late) == ""
    assert "chown -R 20000:20000 /home/alice" in warns(late)
    assert look(of="lab-1-1", homes=homes).problems == (), "the head has the one that counts"


def test_clock_offset_is_warned_about_or_refused() -> None:
    assert "has a clock 9 s behind the server's" in warns(look(of="lab-1-1", clock_off_s=-9.0))
    assert "has a clock 900 s ahead of the server's" in stops(look(of="lab-1-1", clock_off_s=900.0))


def test_folders_that_are_not_shared_are_exported_by_the_head() -> None:
    own = {path: DetectedMount("/dev/sda2", "ext4", f"2 {n} 4096") for n, path in enumerate(("/home", "/scratch"))}
    assert look(of="lab-1-1", mounts=own).nfs == ("/home", "/scratch")
    assert look(of="lab-1-1", mounts={}).nfs == ("/home", "/scratch")
    scratch = {**ONE, "/scratch": own["/scratch"]}
    assert look(of="lab-1-1", mounts=scratch).nfs == ("/scratch",)


def test_identical_unmounted_folders_do_not_count_as_shared() -> None:
    """Machines made from one disk image: every /home looks the same."""
    assert look(mounts={path: replace(one, kind="", source="") for path, one in ONE.items()}).nfs == (
        "/home",
        "/scratch",
    )


def test_head_may_be_the_file_server_of_shared_folders() -> None:
    here = {path: replace(one, kind="", source="") for path, one in ONE.items()}
    assert look(of=LAB.head, mounts=here).nfs == ()


def test_kernel_without_nfs_is_refused() -> None:
    told = look(mounts={}, nfs_server=False, nfs_client=False)
    assert (
        "lab-head (10.9.0.10) has to export /home and /scratch, which the machines do not share, and its kernel has no NFS server"
        in stops(told)
    )
    assert "lab-1-1 (10.9.0.11) has to mount the head's /home and /scratch, and its kernel has no NFS" in stops(told)


TWO = replace(LAB, controllers=2, storage=StorageFolders(state="/shared/headway"))
SHARED = DetectedMount("filer:/srv", "nfs4", "7", "/shared", "10.9.0.50")


def state_stops(storage: StorageFolders = TWO.storage, **states: DetectedMount | None) -> str:
    """What is said of two heads whose state folder lies on these."""
    two = replace(TWO, storage=storage)
    found = {two.heads[0]: SHARED, two.heads[1]: SHARED} | {f"lab-{name}": one for name, one in states.items()}
    surveys = {
        name: replace(GOOD, machine=name, address=f"10.9.0.{n}", hostname=f"rack{n}", state=found.get(name))
        for n, name in enumerate(two.machine_names, 10)
    }
    return stops(evaluate_surveys(two, surveys, NEW))


def test_state_folder_on_a_separate_file_server_is_accepted() -> None:
    assert state_stops() == ""


def test_state_folder_on_the_disk_of_a_head_is_refused() -> None:
    said = "lab-head2 (10.9.0.11) has /shared/headway on its own disk; set storage.state to a folder"
    assert said in state_stops(head2=DetectedMount("/dev/sda1", "ext4", "2", "/"))
    assert said in state_stops(head2=None)
    assert said in state_stops(head2=DetectedMount("tmpfs", "tmpfs", "1", "/shared"))


@pytest.mark.parametrize("server", ["10.9.0.10", "rack10", "lab-head", "192.168.7.1"])
def test_state_folder_exported_by_a_head_is_refused(server: str) -> None:
    two = replace(TWO, hosts=(Host("lab-head", "lab-head"),))
    surveys = {
        name: replace(
            GOOD, machine=name, address=f"10.9.0.{n}", hostname=f"rack{n}", addresses=frozenset([f"192.168.7.{n - 9}"]),
            state=replace(SHARED, source=f"{server}:/srv", server=""),
        )
        for n, name in enumerate(two.machine_names, 10)
    }  # fmt: skip
    faults = stops(evaluate_surveys(two, surveys, NEW))
    assert (
        "lab-head2 (10.9.0.11) has /shared/headway from lab-head, one of the heads: it is lost with that head" in faults
    )


def test_state_folder_server_is_recognised_by_its_address() -> None:
    assert "has /shared/headway from lab-head, one of the heads" in state_stops(
        head2=replace(SHARED, server="10.9.0.10")
    )


def test_state_folder_with_different_file_systems_is_refused() -> None:
    said = state_stops(head=DetectedMount("/dev/sdb1", "xfs", "7", "/shared"))
    assert (
        "/shared/headway is not the same kind of file system on both heads: xfs on lab-head, nfs4 on lab-head2" in said
    )


def test_different_state_folders_of_the_same_path_are_refused() -> None:
    assert "/shared/headway is not the same folder on lab-head and lab-head2" in state_stops(
        head2=replace(SHARED, mark="8")
    )


def test_state_folder_on_an_unmounted_volume_is_judged_by_its_source() -> None:
    def volume(source: str) -> StorageFolders:
        return StorageFolders(state="/shared/headway", volumes=(Volume("s", "/shared", "nfs4", source),))

    bare = DetectedMount("/dev/sda1", "ext4", "2", "/")
    assert state_stops(volume("filer:/srv"), head=bare, head2=bare) == ""
    assert "from lab-head2, one of the heads" in state_stops(volume("10.9.0.11:/srv"), head=bare, head2=bare)


@pytest.mark.parametrize(
    ("source", "serves"),
    [
        ("filer:/vol/rack10", False),
        ("//filer/rack10", False),
        ("mgs@tcp:/rack10", False),
        ("/dev/mapper/rack10", False),
        ("//rack10/share", True),
        ("https://rack10/share", True),
        ("rack10@tcp:mgs@tcp:/fsx", True),
        ("filer,rack10:/fs", True),
        ("user@rack10:/srv", True),
        ("rack10:volume", True),
        ("[10.9.0.11]:/srv", True),
        ("user@[10.9.0.12]:/srv", False),
    ],
)
def test_mount_source_names_a_head_only_as_its_server(source: str, serves: bool) -> None:
    one = replace(SHARED, source=source, server="")
    assert ("one of the heads" in state_stops(head=one, head2=one)) is serves


def test_two_heads_require_folders_that_no_head_exports() -> None:
    surveys = {
        name: replace(GOOD, machine=name, address=f"10.9.0.{n}", state=SHARED, mounts={})
        for n, name in enumerate(TWO.machine_names, 10)
    }
    faults = stops(evaluate_surveys(TWO, surveys, NEW))
    assert "lab-head would export /home and /scratch, and with controllers: 2" in faults


def test_later_machine_must_share_the_folders_of_the_first_ones() -> None:
    known = replace(NEW, found=dict.fromkeys(NAMES[:2], MACHINE))
    assert "lab-1-2 (10.9.0.12) does not mount the /home" in stops(look(known, of="lab-1-2", mounts={}))


def test_lost_hardware_is_a_fault_and_added_hardware_is_recorded() -> None:
    known = replace(NEW, found=dict.fromkeys(NAMES, MACHINE))
    less = look(known, of="lab-1-1", found=replace(MACHINE, gpus=GPUS[:7]))
    assert less.found["lab-1-1"] == MACHINE
    assert "lab-1-1 (10.9.0.11) has 1 GPUs less than when the cluster took it" in warns(less)
    more = replace(MACHINE, memory_mib=4_000_000)
    assert look(known, of="lab-1-1", found=more).found["lab-1-1"] == more
    kernel = replace(MACHINE, memory_mib=MACHINE.memory_mib + 300)
    assert look(known, of="lab-1-1", found=kernel).found["lab-1-1"] == MACHINE


def test_vulnerable_versions_are_reported_once_with_their_source() -> None:
    packages = {"slurmd": "24.11.5-4", "munge": "0.5.16-1", "nvidia-container-toolkit": "1"}
    told = warns(look(packages=packages))
    assert told.count("CVE-2026-25506") == 1
    assert "munge 0.5.16-1 on lab-head,lab-1-[1-2] is vulnerable to CVE-2026-25506" in told
    assert "CVE-2026-65107 and 7 more" in told
    assert "CVE-2025-43904" not in told  # mended in 24.11.5
    mended = warns(look(packages=packages, amended=frozenset(("CVE-2026-25506",))))
    assert "CVE-2026-25506" not in mended


def test_same_machine_under_two_addresses_is_refused() -> None:
    assert "is the same machine as lab-head" in stops(look(identity="same"))


def test_down_fabric_ports_are_reported() -> None:
    nic = DetectedNic("mlx5_1", "InfiniBand", 400, up=False)
    assert "fabric ports that are down: mlx5_1" in warns(look(found=replace(MACHINE, nics=(nic,))))


def test_gres_conf_lists_the_cores_near_each_gpu() -> None:
    sides = (tuple(range(4)), tuple(range(4, 8)))
    gpus = tuple(replace(gpu, cores=sides[n // 4], minor=7 - n) for n, gpu in enumerate(GPUS))
    site = replace(
        builders.site(LAB), found={"lab-1-1": replace(MACHINE, gpus=gpus), "lab-1-2": replace(MACHINE, gpus=())}
    )
    text = gres_conf(LAB, site)
    assert "NodeName=lab-1-1 Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=0-3 " in text
    assert "NodeName=lab-1-1 Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=4-7 " in text
    assert "lab-1-2" not in text
    assert hardware_of(LAB, site, "lab-1-2").gpus == 0


@pytest.mark.parametrize(("cpus", "topology"), [(32, (1, 24, 1)), (15, (1, 8, 1)), (15, (2, 7, 1))])
def test_uneven_core_counts_are_rendered_without_topology(cpus: int, topology: tuple[int, int, int]) -> None:
    """Slurm refuses a count of sockets and cores that does not come to the CPUs, and each change of slurm.conf after it."""
    sockets, cores, threads = topology
    gpus = tuple(replace(gpu, cores=(0, 1), minor=n) for n, gpu in enumerate(GPUS))
    uneven = replace(MACHINE, cpus=cpus, sockets=sockets, cores_per_socket=cores, threads_per_core=threads, gpus=gpus)
    site = replace(builders.site(LAB), found={"lab-1-1": uneven})
    node = hardware_of(LAB, site, "lab-1-1")
    assert (node.cpus, node.sockets) == (cpus, None)
    assert "Cores=" not in gres_conf(LAB, site)


def test_gpu_type_is_derived_from_the_product_name() -> None:
    plan = builders.H100
    assert gpu_type(plan, "NVIDIA H100 80GB HBM3") == "h100"
    assert gpu_type(plan, "NVIDIA H100 PCIe") == "h100"
    assert gpu_type(plan, "NVIDIA A100-SXM4-40GB") == "a100"
    assert gpu_type(plan, "NVIDIA RTX 6000 Ada Generation") == "rtx_6000_ada_gen"
