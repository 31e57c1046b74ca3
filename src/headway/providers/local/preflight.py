"""Checks this host for local machines and reports every problem at once, each with a fix."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.domain.machines.machine import HostProblem

_PROGRAMS = ("podman", "runc", "conmon", "netavark", "iptables", "mmdebstrap")
_ELSEWHERE = ("/usr/sbin", "/usr/lib/podman", "/usr/libexec/podman", "/usr/local/lib/podman")
# Minimum of fs.inotify.max_user_instances: with less, systemd in the tenth machine can't watch its files
_INOTIFY = 512
_PTYS = 1024


@dataclass(frozen=True)
class Probe:
    """Access to the host for the checks; tests replace it."""

    root: Path = Path("/")
    uid: Callable[[], int] = os.geteuid
    which: Callable[[str], str | None] = lambda name: (
        shutil.which(name) or shutil.which(name, path=":".join(_ELSEWHERE))
    )
    free_mib: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free >> 20
    port_error: Callable[[int], str] = lambda port: _port_error(port)

    def read(self, path: str) -> str:
        """Returns the text of a file, "" if it can't be read."""
        try:
            return (self.root / path.lstrip("/")).read_text()
        except OSError:
            return ""


def host_problems(
    need_mib: int,
    need_disk_mib: int,
    ports: Sequence[int] = (),
    *,
    disk: Path = Path("/var/lib"),
    probe: Probe | None = None,
) -> tuple[HostProblem, ...]:
    """Returns all problems of this host for machines that need `need_mib` of memory and `need_disk_mib` of disk (measured
    on the disk with `disk`), and for servers on `ports`."""
    host = probe or Probe()
    found: list[HostProblem] = []
    for check in (_rights, _system, _programs, _cgroups, _limits):
        found += check(host)
    found += _room(host, need_mib, need_disk_mib, disk)
    for port in ports:
        if why := host.port_error(port):
            found.append(
                HostProblem(
                    f"port {port} can't be used: {why}", "end the program that holds it, or choose another port"
                )
            )
    return tuple(found)


def _rights(host: Probe) -> Iterator[HostProblem]:
    if host.uid() != 0:
        yield HostProblem("no root rights: local machines are system containers", "run it as root or through sudo")


def _system(host: Probe) -> Iterator[HostProblem]:
    pairs = (line.partition("=") for line in host.read("/etc/os-release").splitlines())
    release = {name: value.strip('"') for name, _, value in pairs}
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        name = release.get("PRETTY_NAME") or "this system"
        yield HostProblem(
            f"{name} is untested: Headway is tested on Debian 12", "continue, or use Debian 12", fatal=False
        )


def _programs(host: Probe) -> Iterator[HostProblem]:
    missing = [name for name in _PROGRAMS if host.which(name) is None]
    if missing:
        names = " ".join(missing)
        yield HostProblem(f"not installed: {', '.join(missing)}", f"make setup (or: apt-get install {names})")


def _cgroups(host: Probe) -> Iterator[HostProblem]:
    mounts = [line.split() for line in host.read("/proc/self/mounts").splitlines()]
    groups = [fields for fields in mounts if len(fields) > 3 and fields[2] in ("cgroup", "cgroup2")]
    if not groups:
        yield HostProblem("no cgroup file system is mounted", "boot with systemd, or mount cgroup2 on /sys/fs/cgroup")
    elif all("ro" in fields[3].split(",") for fields in groups):
        yield HostProblem("cgroups are read-only here", "run Headway on the host itself, or in a privileged container")
    else:
        v1 = {name for fields in groups if fields[2] == "cgroup" for name in fields[3].split(",")}
        v2 = set(host.read("/sys/fs/cgroup/cgroup.controllers").split())
        # With v2, devices are restricted by a BPF program, which needs no controller.
        have = v1 | v2 | ({"devices"} if v2 else set())
        missing = sorted({"cpuset", "devices", "memory"} - have)
        if missing:
            yield HostProblem(
                f"cgroup controllers missing: {', '.join(missing)}", "boot with cgroup_enable=memory (see docs)"
            )


def _limits(host: Probe) -> Iterator[HostProblem]:
    for path, least, name in (
        ("/proc/sys/fs/inotify/max_user_instances", _INOTIFY, "fs.inotify.max_user_instances"),
        ("/proc/sys/kernel/pty/max", _PTYS, "kernel.pty.max"),
    ):
        text = host.read(path).strip()
        if text.isdigit() and int(text) < least:
            yield HostProblem(
                f"{name} is {text}, too low for several machines", f"sysctl -w {name}={least}", fatal=False
            )


def disk_space_problems(need_mib: int, disk: Path, probe: Probe | None = None) -> tuple[HostProblem, ...]:
    """Returns a problem if less than `need_mib` is free on the disk where `disk` is or will be."""
    host = probe or Probe()
    while not disk.exists():
        disk = disk.parent
    free_mib = host.free_mib(disk)
    if free_mib >= need_mib:
        return ()
    return (HostProblem(f"{disk} has {free_mib} MiB free, {need_mib} MiB are needed", "free space on that disk"),)


def _room(host: Probe, need_mib: int, need_disk_mib: int, disk: Path) -> Iterator[HostProblem]:
    yield from disk_space_problems(need_disk_mib, disk, host)
    for line in host.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            available_mib = int(line.split()[1]) >> 10
            if available_mib < need_mib:
                yield HostProblem(
                    f"{available_mib} MiB of memory are available, {need_mib} MiB are needed",
                    "stop other programs, or request fewer nodes",
                )


def _port_error(port: int) -> str:
    """Returns why a server can't listen on this loopback port; "" if it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
    return ""
