"""Surveys a machine that is not set up yet: runs node/programs/owned_machines/survey_machine.sh over SSH and parses the
facts. Changes nothing."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping

from headway.domain.machines.gpu_driver import DetectedDriver
from headway.domain.machines.machine import Machine
from headway.domain.machines.survey import (
    DetectedGpu,
    DetectedHardware,
    DetectedMount,
    DetectedNic,
    MachineClaim,
    Survey,
)
from headway.errors import Unreachable
from headway.paths import node_dir
from headway.transport.ssh import Remote

_SURVEY_S = 60
_VERSION_ID = re.compile(r"\d+")
_NVIDIA = "0x10de"
_CPU_LIST = re.compile(r"(\d+)(?:-(\d+))?")


async def survey_machine(
    connections: Remote,
    machine: Machine,
    paths: Iterable[str],
    users: Iterable[str],
    state: str = "",
    uids: Iterable[int] = (),
) -> Survey:
    """Returns the survey of one machine. `state`: a folder whose file system is reported, "" for none; `uids`: uids
    whose user names are reported. Raises Unreachable if the script did not finish."""
    script = (node_dir() / "programs" / "owned_machines" / "survey_machine.sh").read_bytes()
    began = time.time()
    argv = ["sh", "-s", "--", " ".join(paths), " ".join(users), state, " ".join(map(str, uids))]
    ran = await connections.remote(machine, argv, timeout_s=_SURVEY_S, input=script, check=False)
    parts = split_sections(ran.stdout)
    if "end" not in parts:
        output = (ran.stderr or ran.stdout).strip()[-200:]
        raise Unreachable(
            f"{machine.name} ({machine.address}) could not be inspected: {output or 'it printed nothing'}"
        )
    return parse_survey(machine.name, machine.address, parts, began, time.time())


def split_sections(text: str) -> dict[str, list[str]]:
    """Returns the sections of the script's output: {"system": lines, ...}, without empty lines."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("### "):
            lines = parts.setdefault(line[4:].strip(), [])
        elif line.strip():
            lines.append(line)
    return parts


def parse_survey(name: str, address: str, parts: Mapping[str, list[str]], began: float, ended: float) -> Survey:
    """Returns the survey from the script's sections. `began` and `ended`: unix seconds before and after the script, by
    this host's clock."""
    release = dict(_pairs(parts["system"], "="))
    release = {key: value.strip('"') for key, value in release.items()}
    version = _VERSION_ID.match(release.get("VERSION_ID", ""))
    kernel_has = {line.split()[-1] for line in parts["filesystems"]} | set(parts["modules"])
    packages = _packages(parts["packages"])
    disk = parts["disk"][0].split() if parts["disk"] else []
    return Survey(
        machine=name,
        address=address,
        found=_parse_hardware(parts, disk),
        system=f"{release.get('ID', 'unknown')}{version[0] if version else ''}",
        system_name=release.get("PRETTY_NAME") or release.get("ID", "") or "an unknown system",
        kernel=_first(parts["kernel"]),
        hostname=_first(parts["hostname"]),
        clock_off_s=_clock_off_s(parts["time"], began, ended),
        listening=frozenset(int(line, 16) for line in parts["listening"]),
        free_mib=int(disk[3]) >> 10 if len(disk) > 3 else 0,
        packages=packages,
        units=frozenset(parts["units"]),
        slurm_cluster=_first(parts["slurmconf"]),
        mounts=dict(_mounts(parts["mounts"])),
        nfs_server="nfsd" in kernel_has,
        nfs_client=bool(kernel_has & {"nfs", "nfs4", "nfsv4"}),
        firewall="nf_tables" in kernel_has,
        claim=_holder(parts["held"]),
        users={row[0]: int(row[2]) for line in parts["users"] if len(row := line.split(":")) > 2 and row[2].isdigit()},
        homes=dict(_homes(parts.get("homes", []))),
        owners={int(row[2]): row[0] for line in parts.get("owners", []) if len(row := line.split(":")) > 2},
        driver=_driver(parts.get("driver", [])),
        identity=_first(parts["boot"]),
        amended=frozenset(parts["amended"]),
        state=_state(parts.get("state", [])),
        architecture=_first(parts.get("architecture", [])) or "x86_64",
        systemd=_first(parts.get("systemd", [])) != "no",
        container_runtimes=tuple(parts.get("runtimes", [])),
        cgroup_v1=_first(parts.get("cgroup", [])) == "v1",
        missing_controllers=_missing_controllers(_first(parts.get("cgroup", []))),
        selinux_enforcing=_first(parts.get("selinux", [])) == "1",
        addresses=frozenset(filter(None, map(_ipv4, parts.get("addresses", [])))),
        seen_from=_ipv4(_first(parts.get("from", []))),
    )


def _missing_controllers(text: str) -> tuple[str, ...]:
    """Returns what lacks in "v2 CONTROLLERS"; () for cgroup v1."""
    version, *controllers = text.split() or ("",)
    return tuple(sorted({"cpuset", "memory", "pids"}.difference(controllers))) if version == "v2" else ()


def _clock_off_s(lines: list[str], began: float, ended: float) -> float:
    """Returns by how many seconds the machine's clock is certainly ahead, or behind (negative). The script may wait
    long for a connection or a driver; but it printed its first time after `began` and its last one before `ended`."""
    times = [float(line) for line in lines]
    if not times:
        return 0.0
    return round(max(times[-1] - ended, 0.0) + min(times[0] - began, 0.0), 2)


def _ipv4(text: str) -> str:
    """Returns the IPv4 address in the text, "" for any other text, because the value becomes part of firewall rules."""
    try:
        return str(ipaddress.IPv4Address(text.removeprefix("::ffff:")))
    except ValueError:
        return ""


def _parse_hardware(parts: Mapping[str, list[str]], disk: list[str]) -> DetectedHardware:
    memory = dict(_pairs(parts["memory"], ":"))
    allowed = _cpus(_first(parts["allowed"]))
    rows = sorted(
        (int(package), int(core), int(cpu))
        for cpu, package, core in (line.split() for line in parts["cpus"])
        if not allowed or int(cpu) in allowed
    )
    places = sorted({(package, core) for package, core, _ in rows})
    number = {place: index for index, place in enumerate(places)}  # numbered as Slurm does: socket after socket
    core_of = {cpu: number[package, core] for package, core, cpu in rows}
    sockets = len({package for package, _ in places}) or 1
    return DetectedHardware(
        cpus=len(rows) or 1,
        sockets=sockets,
        cores_per_socket=max(1, len(places) // sockets),
        threads_per_core=max(1, len(rows) // max(1, len(places))),
        memory_mib=int(memory.get("MemTotal", "0").split()[0]) >> 10,
        tmp_mib=int(disk[1]) >> 10 if len(disk) > 1 else 0,
        gpus=tuple(_gpus(parts, core_of)),
        nics=tuple(_nics(parts["fabric"])),
    )


def _gpus(parts: Mapping[str, list[str]], core_of: Mapping[int, int]) -> Iterator[DetectedGpu]:
    """Yields the GPUs that the driver reports, in its order, then those that are only visible on the bus."""
    near: dict[str, tuple[int, ...]] = {}
    silent: list[str] = []
    for line in parts["pci"]:
        bus, kind, vendor, *rest = line.split()
        attributes = dict(_pairs(rest, "="))
        cores = {core_of[cpu] for cpu in _cpus(attributes.get("cpus", "")) if cpu in core_of}
        near[_bus(bus)] = () if len(cores) == len(set(core_of.values())) else tuple(sorted(cores))
        if vendor == _NVIDIA and kind.startswith("0x03"):
            silent.append(_bus(bus))
    minors = {_bus(row[0]): int(row[1]) for line in parts["minors"] if len(row := line.split()) == 2}
    for line in parts["nvidia"]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdigit():
            continue
        index, product, memory, bus, _ = fields
        at = _bus(bus)
        if at in silent:
            silent.remove(at)
        minor = minors.get(at, int(index))
        yield DetectedGpu(product, int(memory) if memory.isdigit() else 0, at, near.get(at, ()), minor)
    for at in silent:
        yield DetectedGpu("", 0, at, near.get(at, ()))


def _bus(text: str) -> str:
    """Returns a bus address in the kernel's form: nvidia-smi writes 00000000:3B:00.0 for 0000:3b:00.0."""
    return text.lower()[-12:]


def _driver(lines: list[str]) -> DetectedDriver:
    fields = dict(_pairs(lines, "="))
    switches = fields.get("nvswitches", "")
    return DetectedDriver(
        loaded=_version(fields, "loaded"),
        on_disk=_version(fields, "on_disk"),
        libraries=_version(fields, "libraries"),
        offered=_version(fields, "offered"),
        nouveau="nouveau" in fields,
        secure_boot="secure_boot" in fields,
        nvswitches=int(switches) if switches.isdigit() else 0,
        dcgm="dcgm" in fields,
    )


def _version(fields: Mapping[str, str], name: str) -> str:
    match = re.fullmatch(r"[0-9]+(\.[0-9]+)*", fields.get(name, "").strip())
    return match[0] if match else ""


def _nics(lines: list[str]) -> Iterator[DetectedNic]:
    for line in lines:
        name, _, *rest = line.split()
        fields = dict(_pairs(rest, "="))
        rate = re.match(r"\d+", fields.get("rate", ""))
        numa = fields.get("numa", "")
        yield DetectedNic(
            name,
            fields.get("layer", ""),
            int(rate[0]) if rate else 0,
            "ACTIVE" in fields.get("state", ""),
            int(numa) if numa.lstrip("-").isdigit() else -1,
        )


def _mounts(lines: list[str]) -> Iterator[tuple[str, DetectedMount]]:
    """Yields (folder, mount at exactly that folder). Inode and times identify a folder that several machines share."""
    for line in lines:
        path, inode, changed, size, *rest = line.split()
        kind, source = (rest[0], rest[1]) if len(rest) > 1 else ("", "")
        yield path, DetectedMount(source, kind, f"{inode} {changed} {size}")


def _homes(lines: list[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        uid, _, path = line.partition(" ")
        yield path, int(uid)


def _state(lines: list[str]) -> DetectedMount | None:
    if not lines:
        return None
    at, inode, *rest = lines[0].split()
    kind, source, options = (*rest, "", "", "")[:3]
    fields = dict(_pairs(options.split(","), "="))
    return DetectedMount(source, kind, inode, at, fields.get("addr", ""))


def _packages(lines: list[str]) -> dict[str, str]:
    rows = (line.split() for line in lines)
    return {row[-2]: row[-1] for row in rows if len(row) >= 3 and row[0].startswith("ii")}


def _holder(lines: list[str]) -> MachineClaim | None:
    if not lines:
        return None
    try:
        claim = json.loads("".join(lines))
        return MachineClaim(str(claim["cluster"]), str(claim["server"]), str(claim["machine"]))
    except (ValueError, KeyError, TypeError):
        return MachineClaim("?", "?", "?")  # an unreadable mark still means that the machine is in use


def _cpus(text: str) -> frozenset[int]:
    found: set[int] = set()
    for match in _CPU_LIST.finditer(text):
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def _pairs(lines: Iterable[str], mark: str) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, found, value = line.partition(mark)
        if found:
            yield key.strip(), value.strip()


def _first(lines: list[str]) -> str:
    return lines[0].strip() if lines else ""
