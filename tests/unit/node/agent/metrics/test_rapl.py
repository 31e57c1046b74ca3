"""The agent reads CPU and memory energy from the kernel's powercap (RAPL) files, each counter once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.metrics import rapl, sampler

RANGE = 262_143_328_850
PACKAGE, DRAM = "node_rapl_package_joules_total", "node_rapl_dram_joules_total"


def zone(sys: Path, name: str, text: str, micro_j: int = 1_000_000) -> Path:
    folder = sys / "class" / "powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{text}\n")
    (folder / "energy_uj").write_text(f"{micro_j}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return folder


def used(folder: Path, micro_j: int) -> None:
    (folder / "energy_uj").write_text(f"{micro_j}\n")


def sums(counters: Any) -> dict[tuple[str, str], float]:
    found = [(name, labels["index"], value) for name, labels, value in counters.energy_j()]
    assert len({row[:2] for row in found}) == len(found)
    return {row[:2]: row[2] for row in found}


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server with two sockets, as Intel's driver shows it: all that must not be counted twice is there, too."""
    for name, told in (
        ("intel-rapl", "control"), ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:1", "uncore"), ("intel-rapl:0:2", "dram"), ("intel-rapl:1", "package-1"),
        ("intel-rapl:1:0", "dram"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0"), ("dtpm:0", "cpu"),
    ):  # fmt: skip
        zone(tmp_path, name, told)
    return tmp_path


def test_packages_and_dram_are_counted_once_without_subzones(server: Path) -> None:
    counters = rapl.Rapl(str(server))
    assert set(sums(counters).values()) == {0.0}, "what it drew before anybody counted is nobody's"
    for folder in (server / "class" / "powercap").iterdir():
        used(folder, 3_500_000)
    assert sums(counters) == {(PACKAGE, "0"): 2.5, (PACKAGE, "1"): 2.5, (DRAM, "0"): 2.5, (DRAM, "1"): 2.5}


def test_amd_package_zone_is_counted_without_cores(tmp_path: Path) -> None:
    package, _ = zone(tmp_path, "intel-rapl:0", "package-0"), zone(tmp_path, "intel-rapl:0:0", "core")
    counters = rapl.Rapl(str(tmp_path))
    sums(counters)
    used(package, 2_000_000)
    assert sums(counters) == {(PACKAGE, "0"): 1.0}


def test_each_die_of_a_package_is_counted(tmp_path: Path) -> None:
    for number in (0, 1):
        zone(tmp_path, f"intel-rapl:{number}", f"package-0-die-{number}")
    assert set(sums(rapl.Rapl(str(tmp_path)))) == {(PACKAGE, "0-die-0"), (PACKAGE, "0-die-1")}


def test_mmio_zones_are_used_if_no_others_exist(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    assert set(sums(rapl.Rapl(str(tmp_path)))) == {(PACKAGE, "0")}


def test_counter_overflow_continues_the_sum(server: Path) -> None:
    counters, folder = rapl.Rapl(str(server)), server / "class" / "powercap" / "intel-rapl:0"
    used(folder, RANGE - 4_000_000)
    sums(counters)
    used(folder, 6_000_000)
    assert sums(counters)[PACKAGE, "0"] == pytest.approx(10.0)
    used(folder, 7_000_000)
    assert sums(counters)[PACKAGE, "0"] == pytest.approx(11.0)


def test_counter_reset_without_a_range_adds_nothing(server: Path) -> None:
    counters, folder = rapl.Rapl(str(server)), server / "class" / "powercap" / "intel-rapl:0"
    (folder / "max_energy_range_uj").unlink()
    used(folder, 9_000_000)
    sums(counters)
    used(folder, 1_000_000)
    assert sums(counters)[PACKAGE, "0"] == 0
    used(folder, 2_000_000)
    assert sums(counters)[PACKAGE, "0"] == 1


@pytest.mark.parametrize("broken", ["gone", "refused", "nonsense"])
def test_unreadable_zone_is_left_out_until_it_is_readable(server: Path, broken: str) -> None:
    counters, folder = rapl.Rapl(str(server)), server / "class" / "powercap" / "intel-rapl:1"
    sums(counters)
    file = folder / "energy_uj"
    if broken == "gone":
        file.unlink()
    elif broken == "refused":  # to anybody but root, by a kernel of 2020 or later; tests may be root
        file.unlink()
        file.mkdir()
    else:
        file.write_text("\n")
    assert set(sums(counters)) == {(PACKAGE, "0"), (DRAM, "0"), (DRAM, "1")}
    if broken == "refused":
        file.rmdir()
    used(folder, 2_000_000)
    assert sums(counters)[PACKAGE, "1"] == 1.0


def test_counters_may_appear_after_the_start(tmp_path: Path) -> None:
    counters = rapl.Rapl(str(tmp_path))
    assert sums(counters) == {}
    zone(tmp_path, "intel-rapl:0", "package-0")
    assert sums(counters) == {(PACKAGE, "0"): 0.0}


@pytest.mark.parametrize("own", [True, False])
def test_energy_metrics_are_exported_only_with_own_hardware(server: Path, own: bool, monkeypatch: Any) -> None:
    """Containers of one computer all see its counters: added up they would be so many computers."""
    monkeypatch.setattr(sampler, "Rapl", lambda: rapl.Rapl(str(server)))
    monkeypatch.setattr(sampler, "jobs_on_node", list)
    looks = sampler.Sampler(config.Config(head="10.0.0.1", own_hardware=own), None)
    looks.sample(100.0)
    lines = [line for line in looks.text.decode().splitlines() if "rapl" in line]
    path = f"{server}/class/powercap/intel-rapl:0"
    assert (f'{PACKAGE}{{index="0",path="{path}"}} 0.0' in lines) == own
    assert len(lines) == (4 + 2) * own
