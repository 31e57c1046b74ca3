"""Metrics of the machine other than its GPUs, under the names that node_exporter uses."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

Figure = tuple[str, dict[str, str], float]  # (name, labels, value)
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MEMORY = ("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree", "Dirty", "Shmem")
_NETWORK = ("receive_bytes", "receive_packets", "receive_errs", "receive_drop") + ("",) * 4 + (
    "transmit_bytes", "transmit_packets", "transmit_errs", "transmit_drop",
)  # fmt: skip
_FILE_SYSTEMS = (
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
    "overlay",
    "nfs",
    "nfs4",
    "lustre",
    "wekafs",
    "ceph",
    "fuse.ceph",
    "gpfs",
    "beegfs",
)
TICKS = os.sysconf("SC_CLK_TCK")
_SECTOR = 512  # bytes, in /proc/diskstats on all disks
# Partitions count as parts of their disks; RAM and loop devices are no disks.
_NO_DISK = re.compile(r"(ram|loop|fd|zram|sr)\d+|(h|s|v|xv)d[a-z]+\d+|(nvme\d+n\d+|mmcblk\d+)p\d+")


def host_metrics(proc: str = "/proc", sys: str = "/sys") -> Iterator[Figure]:
    """Yields metrics that wait for no disk or network. What can't be read is left out."""
    yield from _cpu(proc)
    yield from _memory(proc)
    yield from _network(proc)
    yield from _disks(proc)
    yield from _infiniband(sys)


def process_metrics() -> Iterator[Figure]:
    """Yields memory and CPU time of the agent itself."""
    words = read_text("/proc/self/statm").split()
    if words:
        yield "process_resident_memory_bytes", {}, int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    yield "process_cpu_seconds_total", {}, round(time.process_time(), 3)


def read_text(path: str) -> str:
    """Returns the file's text; "" if it can't be read. Bytes that are no UTF-8 are replaced, because the kernel cuts
    process names within a character."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _cpu(proc: str) -> Iterator[Figure]:
    for line in read_text(f"{proc}/stat").splitlines():
        words = line.split()
        if words[0].startswith("cpu") and words[0] != "cpu":
            for mode, ticks in zip(_MODES, words[1:], strict=False):
                yield "node_cpu_seconds_total", {"cpu": words[0][3:], "mode": mode}, int(ticks) / TICKS
        elif words[0] == "btime":
            yield "node_boot_time_seconds", {}, int(words[1])
    words = read_text(f"{proc}/loadavg").split()
    for name, value in zip(("node_load1", "node_load5", "node_load15"), words, strict=False):
        yield name, {}, float(value)


def read_meminfo(proc: str = "/proc") -> dict[str, int]:
    """Returns the values of /proc/meminfo in bytes."""
    rows = (line.split() for line in read_text(f"{proc}/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[1].isdigit()}


def _memory(proc: str) -> Iterator[Figure]:
    found = read_meminfo(proc)
    for name in _MEMORY:
        if name in found:
            yield f"node_memory_{name}_bytes", {}, found[name]


def network_counters(proc: str = "/proc") -> dict[str, dict[str, int]]:
    """Returns interface -> counters, under node_exporter's names."""
    found = {}
    for line in read_text(f"{proc}/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        counts = zip(_NETWORK, rest.split(), strict=False)
        found[name.strip()] = {key: int(value) for key, value in counts if key}
    return found


def _network(proc: str) -> Iterator[Figure]:
    for device, counts in network_counters(proc).items():
        if device != "lo":
            for key, value in counts.items():
                yield f"node_network_{key}_total", {"device": device}, value


def _disks(proc: str) -> Iterator[Figure]:
    rows = (line.split() for line in read_text(f"{proc}/diskstats").splitlines())
    disks = [row for row in rows if len(row) >= 14 and not _NO_DISK.fullmatch(row[2])]
    for name, column, unit in (
        ("node_disk_read_bytes_total", 5, _SECTOR),
        ("node_disk_written_bytes_total", 9, _SECTOR),
        ("node_disk_io_time_seconds_total", 12, 0.001),
    ):
        for row in disks:
            yield name, {"device": row[2]}, int(row[column]) * unit


def infiniband_ports(sys: str = "/sys") -> Iterator[tuple[str, str, str]]:
    """Yields (device, port, its folder in /sys) of all InfiniBand and RoCE ports."""
    top = f"{sys}/class/infiniband"
    for device in _list(top):
        for port in _list(f"{top}/{device}/ports"):
            yield device, port, f"{top}/{device}/ports/{port}"


def _infiniband(sys: str) -> Iterator[Figure]:
    for device, port, folder in infiniband_ports(sys):
        labels = {"device": device, "port": port}
        state = read_text(f"{folder}/state").split(":")[0].strip()
        if state.isdigit():
            yield "node_infiniband_state_id", labels, int(state)
        for counter, name, unit in (
            ("port_rcv_data", "port_data_received_bytes", 4),
            ("port_xmit_data", "port_data_transmitted_bytes", 4),
            ("symbol_error", "symbol_error", 1),
            ("link_downed", "link_downed", 1),
            ("port_rcv_errors", "port_errors_received", 1),
        ):
            value = read_text(f"{folder}/counters/{counter}").strip()
            if value.isdigit():
                yield f"node_infiniband_{name}_total", labels, int(value) * unit


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def file_systems(proc: str = "/proc") -> Iterator[Figure]:
    """Yields size and free space of each file system. May block as long as the slowest of them."""
    seen = set()
    for line in read_text(f"{proc}/self/mounts").splitlines():
        device, place, kind, options = line.split()[:4]
        if kind not in _FILE_SYSTEMS or device in seen:
            continue
        seen.add(device)
        try:
            stats = os.statvfs(place)
        except OSError:
            continue
        labels = {"device": device, "fstype": kind, "mountpoint": place}
        yield "node_filesystem_size_bytes", labels, stats.f_frsize * stats.f_blocks
        yield "node_filesystem_free_bytes", labels, stats.f_frsize * stats.f_bfree
        yield "node_filesystem_avail_bytes", labels, stats.f_frsize * stats.f_bavail
        yield "node_filesystem_files_free", labels, stats.f_ffree
        yield "node_filesystem_readonly", labels, float("ro" in options.split(","))
