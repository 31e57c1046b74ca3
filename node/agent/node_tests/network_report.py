"""What NCCL finds on this node: network interfaces, RDMA ports, and the settings of its own file. The server compares it with
what the fabric test measured (health/policy/nccl_mismatches.py)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

from agent.node_tests.allreduce import address_of_interface

SETTINGS = "/etc/nccl.conf"  # NCCL reads it in every job; variables of the job's environment replace its lines
_MOST_BYTES = 65536
_SETTING = re.compile(r"\s*(NCCL_[A-Z0-9_]+)\s*=\s*(.*?)\s*$")


def report_network(sys: str = "/sys", root: str = "") -> dict[str, Any]:
    """Returns {"interfaces": [...], "rdma_ports": [...], "settings": [...]} for JSON. `sys`, `root`: folders that stand for
    /sys and / in tests."""
    return {
        "interfaces": list(_interfaces(sys)),
        "rdma_ports": list(_rdma_ports(sys)),
        "settings": list(_settings(root + SETTINGS)),
    }


def _interfaces(sys: str) -> Iterator[dict[str, Any]]:
    """Yields the interfaces but for loopback. `mbit_s` is 0 where the kernel knows no speed."""
    for name in list_folder(f"{sys}/class/net"):
        speed = read_text(f"{sys}/class/net/{name}/speed")
        if name != "lo":
            yield {"name": name, "address": address_of_interface(name), "mbit_s": int(speed) if speed.isdigit() else 0}


def _rdma_ports(sys: str) -> Iterator[dict[str, Any]]:
    base = f"{sys}/class/infiniband"
    for device in list_folder(base):
        for port in list_folder(f"{base}/{device}/ports"):
            rate = re.match(r"\d+", read_text(f"{base}/{device}/ports/{port}/rate"))
            yield {
                "device": device,
                "port": int(port) if port.isdigit() else 0,
                "active": read_text(f"{base}/{device}/ports/{port}/state").endswith("ACTIVE"),
                "gbit_s": int(rate[0]) if rate else 0,
            }


def _settings(file: str) -> Iterator[dict[str, Any]]:
    for line in read_text(file, _MOST_BYTES).splitlines():
        if found := _SETTING.match(line):
            yield {"name": found[1], "value": found[2]}


def list_folder(folder: str) -> list[str]:
    """Returns the names in a folder; [] if it can't be read."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def read_text(path: str, size: int = 4096) -> str:
    """Returns the text of a file without spaces at its ends; "" if it can't be read."""
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return file.read(size).strip()
    return ""
