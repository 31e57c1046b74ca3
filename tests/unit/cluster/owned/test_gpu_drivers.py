"""The GPU driver is installed on one machine before the others, which stay as they were if it fails there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cluster.owned import gpu_drivers
from headway.domain.machines.gpu_driver import GpuDriver, PackageRepository
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, Refused, Unreachable
from headway.store import StoreUnavailable
from headway.transport.process import CommandResult
from tests.support.clusters import builders

REPOSITORY = PackageRepository("https://packages.example.org/cuda", "/", (), ("the key",))
DRIVER = GpuDriver(install=True, branch="580", repository=REPOSITORY)
NAMES = ("lab-1-1", "lab-1-2", "lab-1-3")
MACHINES = {name: replace(builders.machine(name), user="ops") for name in NAMES}


class Machines:
    """Machines that end an installation as `ends` says, and whose boots are counted."""

    def __init__(self, **ends: Sequence[str]) -> None:
        self.ends = {name.replace("_", "-"): list(words) for name, words in ends.items()}
        self.did: list[tuple[str, ...]] = []
        self.boots = dict.fromkeys(NAMES, 1)
        self.away = 0  # connections that fail after a reboot
        self.key = b""

    async def remote(self, machine: Machine, argv: Sequence[str], **options: Any) -> CommandResult:
        if argv == gpu_drivers._BOOT:
            if self.away:
                self.away -= 1
                raise Unreachable(f"{machine.name} does not answer")
            return CommandResult(tuple(argv), 0, f"boot {self.boots[machine.name]}\n", "", 0.0)
        if argv == ["systemctl", "reboot"]:
            self.did.append((machine.name, "reboot"))
            self.boots[machine.name] += 1
            self.away = 2
            return CommandResult(tuple(argv), 0, "", "", 0.0)
        assert argv[:2] == ["sh", "-c"]
        assert argv[3] == "gpu_driver.sh"
        self.did.append((machine.name, *argv[4:]))
        self.key = options["input"] or self.key
        word = self.ends.get(machine.name, ["ready 580.95.05 8"]).pop(0)
        if not word.startswith(("ready", "reboot")):
            raise CommandFailed(argv, 1, f"W: noise\n{word}\n", where=machine.name)
        return CommandResult(tuple(argv), 0, f"Reading lists\n{word}\n", "", 0.0)

    async def drop(self, name: str) -> None:
        """Connections are not kept."""


async def install(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(gpu_drivers, "_POLL_S", 0.0)
    told: list[str] = []

    async def report(what: str, text: str, **options: Any) -> None:
        told.append(f"{what}: {text}")

    context: Any = SimpleNamespace(connections=machines)
    await gpu_drivers.install_drivers(context, DRIVER, MACHINES, report)
    return told


async def test_one_machine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines()
    told = await install(machines, monkeypatch)
    expected = ("install", "580", "open", "no", REPOSITORY.url, "/", "")
    assert machines.did == [(name, *expected) for name in NAMES]
    assert machines.key == b"the key\n"
    assert told[:2] == [
        "lab-1-1: NVIDIA's driver is being installed from https://packages.example.org/cuda",
        "lab-1-1: NVIDIA driver 580.95.05 with 8 GPUs",
    ]


async def test_failure_of_the_first_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(lab_1_1=["the repository could not be read"])
    with pytest.raises(
        Refused, match=r"lab-1-1 \(.*\): the repository could not be read; lab-1-\[2-3\] stay as they were"
    ):
        await install(machines, monkeypatch)
    assert [row[0] for row in machines.did] == ["lab-1-1"]


async def test_failure_of_another_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(lab_1_2=["no module was built for kernel 6.12"])
    with pytest.raises(Refused, match=r"does not work on lab-1-2:\n  lab-1-2 \(.*\): no module was built"):
        await install(machines, monkeypatch)
    assert [row[0] for row in machines.did] == list(NAMES)


async def test_machine_that_needs_it_is_rebooted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(lab_1_1=["reboot nouveau holds the GPUs", "ready 580.95.05 8"])
    told = await install(machines, monkeypatch)
    assert [row[1] for row in machines.did if row[0] == "lab-1-1"] == ["install", "reboot", "finish"]
    assert "lab-1-1: nouveau holds the GPUs: the machine is rebooted" in told
    again = Machines(lab_1_1=["reboot nouveau holds the GPUs"] * 2)
    with pytest.raises(Refused, match="nouveau holds the GPUs, also after a reboot"):
        await install(again, monkeypatch)


@pytest.mark.parametrize("away_at", ["lab-1-1", "lab-1-2"])
async def test_database_that_is_away_is_no_fault_of_a_driver(away_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation runs again when the database answers; it does not fail because of a driver."""
    monkeypatch.setattr(gpu_drivers, "_POLL_S", 0.0)
    machines = Machines()

    async def report(what: str, text: str, **options: Any) -> None:
        if what == away_at and options.get("done"):
            raise StoreUnavailable("the database does not answer")

    context: Any = SimpleNamespace(connections=machines)
    with pytest.raises(StoreUnavailable):
        await gpu_drivers.install_drivers(context, DRIVER, MACHINES, report)
    assert len({name for name, *_ in machines.did}) == (1 if away_at == "lab-1-1" else 3), (
        "no installation is left running"
    )
