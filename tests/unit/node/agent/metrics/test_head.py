"""The head's agent exports metrics of its daemons and of the nodes whose heartbeats it receives."""

from __future__ import annotations

from pathlib import Path

from agent.metrics.head import DAEMONS, FORGOTTEN_S, HeadSampler

NOW = 10_000.0


def told(tmp_path: Path, beats: dict[str, float], *, first: bool = True) -> str:
    for name in ("stat", "meminfo", "loadavg"):
        (tmp_path / name).write_text(Path("/proc", name).read_text())
    watcher = HeadSampler(beats, str(tmp_path), first=first)
    watcher.sample(NOW)
    return watcher.text.decode()


def test_heartbeat_age_is_dropped_for_nodes_gone_for_long(tmp_path: Path) -> None:
    text = told(tmp_path, {"lab-1-1": NOW - 2, "lab-1-2": NOW - 60, "lab-1-3": NOW - FORGOTTEN_S - 1})
    ages = [line for line in text.splitlines() if line.startswith("headway_heartbeat_age_seconds{")]
    assert ["lab-1-1" in ages[0], "lab-1-2" in ages[1], len(ages)] == [True, True, 2]


def test_second_head_exports_only_its_own_daemons(tmp_path: Path) -> None:
    assert all(f'"{name}"' in told(tmp_path, {}) for name in DAEMONS)
    second = told(tmp_path, {}, first=False)
    missed = {name for name in DAEMONS if f'"{name}"' in second}
    assert missed == {"slurmctld", "slurmrestd", "munge"}
