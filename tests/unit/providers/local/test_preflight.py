"""Preflight reports every missing requirement of a host at once."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headway.providers.local.preflight import Probe, disk_space_problems, host_problems

GOOD = {
    "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "proc/sys/fs/inotify/max_user_instances": "8192\n",
    "proc/sys/kernel/pty/max": "4096\n",
    "proc/meminfo": "MemTotal: 20480000 kB\nMemAvailable: 10240000 kB\n",
}


def host(tmp_path: Path, **others: str) -> Probe:
    for name, text in {**GOOD, **others}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Probe(
        root=tmp_path, uid=lambda: 0, which=lambda _: "/usr/bin/x", free_mib=lambda _: 50_000, port_error=lambda _: ""
    )


def test_suitable_host_has_no_problems(tmp_path: Path) -> None:
    assert host_problems(4000, 10_000, [8000], probe=host(tmp_path)) == ()


def test_reports_all_gaps_at_once_with_fixes(tmp_path: Path) -> None:
    bad = Probe(
        root=host(tmp_path, **{"proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0\n"}).root,
        uid=lambda: 1000,
        which=lambda name: None if name in ("podman", "mmdebstrap") else "/x",
        free_mib=lambda _: 100,
        port_error=lambda port: "it is in use" if port == 8000 else "",
    )
    problems = host_problems(20_000, 10_000, [8000, 8001], probe=bad)
    text = "\n".join(problem.what for problem in problems)
    for word in ("root rights", "podman, mmdebstrap", "read-only", "100 MiB free", "10000 MiB of memory", "port 8000"):
        assert word in text
    assert len(problems) == 6
    assert all(problem.fix and problem.fatal for problem in problems)
    assert "apt-get install podman mmdebstrap" in next(problem.fix for problem in problems if "podman" in problem.what)


def test_unsupported_distribution_is_only_a_warning(tmp_path: Path) -> None:
    other = host(tmp_path, **{"etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n'})
    (problem,) = host_problems(0, 0, probe=other)
    assert (problem.fatal, problem.what[:12]) == (False, "Ubuntu 24.04")


def test_missing_cgroup_controllers_are_named(tmp_path: Path) -> None:
    (problem,) = host_problems(0, 0, probe=host(tmp_path, **{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu pids\n"}))
    assert "memory" in problem.what
    v1 = "cgroup /a cgroup rw,memory 0 0\ncgroup /b cgroup rw,devices 0 0\ncgroup /c cgroup rw,cpuset 0 0\n"
    files = {"proc/self/mounts": v1, "sys/fs/cgroup/cgroup.controllers": ""}
    assert host_problems(0, 0, probe=host(tmp_path, **files)) == ()


@pytest.mark.parametrize(("name", "value"), [("fs/inotify/max_user_instances", "128"), ("kernel/pty/max", "64")])
def test_low_kernel_limits_are_warnings(tmp_path: Path, name: str, value: str) -> None:
    (problem,) = host_problems(0, 0, probe=host(tmp_path, **{f"proc/sys/{name}": f"{value}\n"}))
    assert not problem.fatal
    assert problem.fix.startswith("sysctl -w ")


def test_reports_port_in_use(tmp_path: Path) -> None:
    probe = host(tmp_path)
    real = Probe(root=probe.root, uid=probe.uid, which=probe.which, free_mib=probe.free_mib)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        (problem,) = host_problems(0, 0, [port], probe=real)
        assert problem.what == f"port {port} can't be used: it is in use"
    assert host_problems(0, 0, [port], probe=real) == ()


def test_checks_disk_space_at_nearest_existing_parent(tmp_path: Path) -> None:
    (problem,) = disk_space_problems(
        100, tmp_path / "not" / "yet", Probe(free_mib=lambda path: 7 if path == tmp_path else 1 << 20)
    )
    assert problem.what == f"{tmp_path} has 7 MiB free, 100 MiB are needed"
    assert disk_space_problems(7, tmp_path, Probe(free_mib=lambda _: 7)) == ()
