"""A node reports what NCCL finds on it."""

from __future__ import annotations

import json
from pathlib import Path

from agent.node_tests.network_report import report_network


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")


def test_interfaces_ports_and_settings_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/ens1f0", speed="100000")
    write(tmp_path / "sys/class/net/ib0", speed="-1")
    write(tmp_path / "sys/class/net/lo")
    ports = tmp_path / "sys/class/infiniband"
    write(ports / "mlx5_0/ports/1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", link_layer="InfiniBand")
    write(ports / "mlx5_1/ports/1", state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    write(tmp_path / "etc", **{"nccl.conf": "# of the site\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0 \nOTHER=1"})
    found = report_network(str(tmp_path / "sys"), str(tmp_path))
    assert json.loads(json.dumps(found)) == {
        "interfaces": [
            {"name": "ens1f0", "address": "", "mbit_s": 100000},
            {"name": "ib0", "address": "", "mbit_s": 0},
        ],
        "rdma_ports": [
            {"device": "mlx5_0", "port": 1, "active": True, "gbit_s": 400},
            {"device": "mlx5_1", "port": 1, "active": False, "gbit_s": 10},
        ],
        "settings": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "NCCL_SOCKET_IFNAME", "value": "=ens1f0"}],
    }


def test_node_without_any_of_it_reports_nothing(tmp_path: Path) -> None:
    assert report_network(str(tmp_path), str(tmp_path)) == {"interfaces": [], "rdma_ports": [], "settings": []}
