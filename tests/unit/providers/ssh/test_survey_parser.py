"""parse_survey reads a survey recorded from a bare Debian 13, and parts of larger machines' surveys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headway.domain.machines.gpu_driver import DetectedDriver
from headway.domain.machines.survey import DetectedGpu, DetectedMount, DetectedNic, MachineClaim
from headway.providers.ssh.survey_parser import parse_survey, split_sections

RECORDED = (Path(__file__).parents[3] / "support" / "machines" / "data" / "survey-bare-debian13.txt").read_text()
NOW = 1795282644.0


def parts(**others: str) -> dict[str, list[str]]:
    found = split_sections(RECORDED)
    return {**found, **{name: text.splitlines() for name, text in others.items()}}


def test_parses_survey_of_bare_machine() -> None:
    survey = parse_survey("lab-head", "10.9.0.10", parts(), NOW, NOW)
    assert (survey.system, survey.system_name, survey.hostname) == (
        "debian13",
        "Debian GNU/Linux 13 (trixie)",
        "rack10",
    )
    assert (survey.found.cpus, survey.found.sockets, survey.found.cores_per_socket, survey.found.threads_per_core) == (
        2,
        1,
        2,
        1,
    )
    assert survey.found.memory_mib == 24684096 // 1024
    assert survey.found.gpus == ()
    assert survey.listening == {22}
    assert survey.packages["sudo"] == "1.9.16p2-3+deb13u2"
    assert survey.mounts["/home"].kind == "ext4"
    assert (survey.nfs_server, survey.nfs_client, survey.firewall) == (False, False, True)
    assert survey.claim is None
    assert survey.clock_off_s == pytest.approx(0.21)


def test_survey_says_what_can_run_a_container_there() -> None:
    lines = {"runtimes": "podman\nrunc\n", "cgroup": "v1\n", "selinux": "1\n", "architecture": "aarch64\n"}
    survey = parse_survey("a", "b", parts(**lines), NOW, NOW)
    assert survey.container_runtimes == ("podman", "runc")
    assert (survey.cgroup_v1, survey.selinux_enforcing, survey.architecture) == (True, True, "aarch64")
    other = parse_survey("a", "b", parts(cgroup="v2\n", selinux="0\n", systemd="no\n"), NOW, NOW)
    assert (other.cgroup_v1, other.selinux_enforcing, other.systemd) == (False, False, False)
    assert not parse_survey("a", "b", parts(), NOW, NOW).cgroup_v1, "a survey without that section"
    v2 = parse_survey("a", "b", parts(cgroup="v2 cpuset cpu io memory pids\n"), NOW, NOW)
    bound_to_v1 = parse_survey("a", "b", parts(cgroup="v2 hugetlb\n"), NOW, NOW)
    assert (survey.missing_controllers, v2.missing_controllers) == ((), ())
    assert bound_to_v1.missing_controllers == ("cpuset", "memory", "pids")


@pytest.mark.parametrize(
    ("clocks", "off"),
    [
        ((0.5, 9.5), 0.0),
        ((8.0, 9.9), 0.0),  # the connection took its time
        ((0.1, 1.0), 0.0),
        ((5.5, 14.5), 4.5),
        ((-4.5, 4.5), -4.5),
        ((905.0, 906.0), 896.0),
    ],
)
def test_slow_survey_is_not_taken_for_clock_offset(clocks: tuple[float, float], off: float) -> None:
    survey = parse_survey("a", "b", parts(time="\n".join(str(NOW + clock) for clock in clocks)), NOW, NOW + 10)
    assert survey.clock_off_s == off


GPU_PARTS = {
    # Two sockets of four cores with two threads each; threads are numbered after all cores.
    "cpus": "\n".join(f"{n} {n % 8 // 4} {n % 4}" for n in range(16)),
    "allowed": "0-15",
    "pci": """\
0000:1b:00.0 0x030200 0x10de 0x2330 numa=0 cpus=0-3,8-11
0000:9b:00.0 0x030200 0x10de 0x2330 numa=1 cpus=4-7,12-15
0000:9c:00.0 0x030200 0x10de 0x2330 numa=1 cpus=4-7,12-15
0000:18:00.0 0x020700 0x15b3 0x1021 numa=0 cpus=0-3,8-11""",
    "nvidia": """\
0, NVIDIA H100 80GB HBM3, 81559, 00000000:1B:00.0, 550.54.15
1, NVIDIA H100 80GB HBM3, 81559, 00000000:9B:00.0, 550.54.15""",
    "driver": "loaded=550.54.15\non_disk=550.54.15\nlibraries=550.54.15\nnvswitches=4\ndcgm=yes\noffered=",
    "minors": "0000:1b:00.0 1\n0000:9b:00.0 0",
    "fabric": """\
mlx5_0 1 numa=0 layer=InfiniBand state=4:_ACTIVE rate=400_Gb/sec_(4X_NDR)
mlx5_1 1 numa=1 layer=InfiniBand state=1:_DOWN rate=10_Gb/sec_(4X_SDR)""",
}


def test_survey_finds_gpus_with_minors_local_cores_and_nics() -> None:
    survey = parse_survey("lab-1-1", "10.9.0.11", parts(**GPU_PARTS), NOW, NOW)
    assert survey.driver == DetectedDriver(
        loaded="550.54.15", on_disk="550.54.15", libraries="550.54.15", nvswitches=4, dcgm=True
    )
    assert survey.found.gpus == (
        DetectedGpu("NVIDIA H100 80GB HBM3", 81559, "0000:1b:00.0", (0, 1, 2, 3), 1),
        DetectedGpu("NVIDIA H100 80GB HBM3", 81559, "0000:9b:00.0", (4, 5, 6, 7), 0),
        DetectedGpu("", 0, "0000:9c:00.0", (4, 5, 6, 7), -1),  # on the bus, and the driver says nothing of it
    )
    assert len(survey.found.usable_gpus) == 2
    assert survey.found.topology == (2, 4, 2)
    assert survey.found.nics == (
        DetectedNic("mlx5_0", "InfiniBand", 400, True, 0),
        DetectedNic("mlx5_1", "InfiniBand", 10, False, 1),
    )


def test_failed_nvidia_driver_leaves_no_usable_gpu() -> None:
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    survey = parse_survey("lab-1-1", "10.9.0.11", parts(**{**GPU_PARTS, "nvidia": said, "minors": ""}), NOW, NOW)
    assert survey.found.usable_gpus == ()
    assert len(survey.found.gpus) == 3


def test_survey_counts_only_allowed_cpus() -> None:
    survey = parse_survey("lab-1-1", "10.9.0.11", parts(**{**GPU_PARTS, "allowed": "0-3"}), NOW, NOW)
    assert (survey.found.cpus, survey.found.topology) == (4, (1, 4, 1))
    assert survey.found.gpus[0].cores == ()  # all cores are near it


def test_unreadable_claim_still_marks_machine_as_held() -> None:
    assert parse_survey("a", "b", parts(held="{broken"), NOW, NOW).claim == MachineClaim("?", "?", "?")
    good = '{"cluster": "lab", "server": "s", "machine": "lab-1-1"}'
    assert parse_survey("a", "b", parts(held=good), NOW, NOW).claim == MachineClaim("lab", "s", "lab-1-1")


# --- which machine has which place


@pytest.mark.parametrize(
    ("text", "understood"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("fd00::7", ""),
        ("198.51.100.7 }; accept", ""),
        ("", ""),
    ],
)
def test_parses_ssh_source_address_of_survey(text: str, understood: str) -> None:
    assert parse_survey("lab-head", "10.9.0.10", parts(**{"from": text}), NOW, NOW).seen_from == understood


@pytest.mark.parametrize("above", ["env SSH_CONNECTION='198.51.100.7 5 10.9.0.10 22'"])
def test_survey_script_finds_ssh_source_address_under_sudo(above: str) -> None:
    """Which clears the variable: whoever called it has it still."""
    script = Path(__file__).parents[4] / "node" / "programs" / "owned_machines" / "survey_machine.sh"
    tail = script.read_text().partition("part from\n")[2].partition("part time")[0]
    ran = subprocess.run(
        ["sh", "-c", f"{above} sh -c 'env -u SSH_CONNECTION sh -s; true'"],
        input=tail, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "198.51.100.7\n"


def state_part(folder: Path) -> str:
    script = (Path(__file__).parents[4] / "node" / "programs" / "owned_machines" / "survey_machine.sh").read_text()
    part = script.partition("part state\n")[2].partition("part users")[0]
    argv = ["sh", "-c", f"part() {{ :; }}\n{part}", "sh", "", "", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def test_survey_reports_file_system_of_missing_state_folder(tmp_path: Path) -> None:
    survey = parse_survey(
        "lab-head", "10.9.0.10", parts(state=state_part(tmp_path / "not" / "yet").splitlines()[0]), NOW, NOW
    )
    assert survey.state is not None
    assert (
        survey.state.at == subprocess.run(["stat", "-c", "%m", tmp_path], capture_output=True, text=True).stdout.strip()
    )
    assert survey.state.kind
    # Of times each head may show its own for a while.
    assert survey.state.mark == str(Path(survey.state.at).stat().st_ino)
    assert parse_survey("lab-head", "10.9.0.10", parts(), NOW, NOW).state is None


def test_survey_reports_home_owners_and_uids(tmp_path: Path) -> None:
    script = (Path(__file__).parents[4] / "node" / "programs" / "owned_machines" / "survey_machine.sh").read_text()
    part = script.partition("part homes\n")[2].partition("part filesystems")[0]
    (tmp_path / "ann").mkdir()
    argv = [
        "sh",
        "-c",
        f'part() {{ echo "### $1"; }}\n{part}',
        "sh",
        f"{tmp_path} /none",
        "ann ben",
        "",
        "0 4294967000",
    ]
    text = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout
    homes, _, owners = text.partition("### owners\n")
    survey = parse_survey("lab-head", "10.9.0.10", parts(homes=homes, owners=owners), NOW, NOW)
    assert survey.homes == {f"{tmp_path}/ann": (tmp_path / "ann").stat().st_uid}
    assert survey.owners == {0: "root"}
    bare = parse_survey("lab-head", "10.9.0.10", parts(), NOW, NOW)
    assert (bare.homes, bare.owners) == ({}, {})


def test_survey_reports_address_of_mount_server() -> None:
    line = "/shared 2 nfs4 filer:/srv rw,vers=4.2,clientaddr=10.9.0.10,addr=10.9.0.50"
    survey = parse_survey("lab-head", "10.9.0.10", parts(state=line, addresses="10.9.0.10\n127.0.0.1\nx"), NOW, NOW)
    assert survey.state == DetectedMount("filer:/srv", "nfs4", "2", "/shared", "10.9.0.50")
    assert survey.addresses == {"10.9.0.10", "127.0.0.1"}
