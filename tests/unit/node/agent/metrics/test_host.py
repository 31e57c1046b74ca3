"""Metrics of the machine: disks."""

from __future__ import annotations

from pathlib import Path

from agent.metrics.host import host_metrics

DISKSTATS = """   7       0 loop0 9 0 80 1 0 0 0 0 0 1 1 0 0 0 0 0 0
   8       0 sda 100 5 2000 30 50 6 4000 40 0 1500 70 0 0 0 0 0 0
   8       1 sda1 100 5 2000 30 50 6 4000 40 0 1500 70 0 0 0 0 0 0
 259       0 nvme0n1 10 0 8 1 2 0 16 1 0 20 2 0 0 0 0 0 0
 259       1 nvme0n1p1 10 0 8 1 2 0 16 1 0 20 2 0 0 0 0 0 0
"""


def test_disk_metrics_count_each_disk_once(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text(DISKSTATS)
    found = {(name, labels["device"]): value for name, labels, value in host_metrics(str(tmp_path), str(tmp_path))}
    assert found == {
        ("node_disk_read_bytes_total", "sda"): 2000 * 512,
        ("node_disk_read_bytes_total", "nvme0n1"): 8 * 512,
        ("node_disk_written_bytes_total", "sda"): 4000 * 512,
        ("node_disk_written_bytes_total", "nvme0n1"): 16 * 512,
        ("node_disk_io_time_seconds_total", "sda"): 1.5,
        ("node_disk_io_time_seconds_total", "nvme0n1"): 0.02,
    }
