"""After a controller change a node registers again once, so that Slurm finds jobs that no longer run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.failover import reregistration
from agent.roles import head

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


def register(registers: reregistration.Reregistration, now: float) -> None:
    """Registers if that is due, and waits until it is done."""
    if (reload := registers.register_if_due(now)) is not None:
        reload.join(60)


def test_node_registers_again_once_after_a_head_change_and_a_delay() -> None:
    asked: list[Sequence[str]] = []
    registers = reregistration.Reregistration(lambda argv: asked.append(argv) or 0)
    registers.note_leader(FIRST, 7, 10.0)
    register(registers, 1000.0)
    assert asked == [], "an agent that has just started is no change"
    for at in (1000.0, 1001.0, 1002.0):
        registers.note_leader(SECOND, 7, at)
    register(registers, 1000.0 + reregistration.AFTER_S - 1)
    assert asked == []
    for at in (1000.0, 1300.0):
        register(registers, at + reregistration.AFTER_S)
    assert asked == [("systemctl", "reload", "--no-block", "slurmd.service")]


def test_restarted_controller_of_the_same_head_counts_as_a_change() -> None:
    asked: list[Sequence[str]] = []
    registers = reregistration.Reregistration(lambda argv: asked.append(argv) or 0)
    for at, controller in (
        (10.0, 7),
        (11.0, 7),
        (12.0, 0),
        (13.0, 7),
    ):  # 0: none for a moment, and then the one of before
        registers.note_leader(FIRST, controller, at)
    register(registers, 1000.0)
    assert asked == []
    registers.note_leader(FIRST, 0, 1000.0)
    registers.note_leader(FIRST, 8, 1001.0)
    register(registers, 1000.9 + reregistration.AFTER_S)
    assert asked == []
    register(registers, 1001.0 + reregistration.AFTER_S)
    assert len(asked) == 1


def test_registration_waits_until_only_one_head_claims_to_lead() -> None:
    asked: list[Sequence[str]] = []
    registers = reregistration.Reregistration(lambda argv: asked.append(argv) or 0)
    for at in (10.0, 11.0, 12.0):
        registers.note_leader(FIRST, 7, at)
        registers.note_leader(SECOND, 7, at + 0.1)
    register(registers, 12.0 + reregistration.AFTER_S)
    assert asked == []
    register(registers, 12.1 + reregistration.AFTER_S)
    assert len(asked) == 1


def test_failed_slurmd_reload_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    from agent import log

    log._last_written[0] = -1.0
    registers = reregistration.Reregistration(lambda argv: 1)
    registers.note_leader(FIRST, 7, 1.0)
    registers.note_leader(SECOND, 7, 2.0)
    register(registers, 100.0)
    assert "systemctl reload --no-block slurmd.service ended with 1" in capsys.readouterr().err


def test_systemctl_that_hangs_does_not_hang_the_agent() -> None:
    hangs, ends = threading.Event(), threading.Event()

    def execute(_: Sequence[str]) -> int:
        hangs.set()
        ends.wait(60)
        return 0

    registers = reregistration.Reregistration(execute)
    registers.note_leader(FIRST, 7, 1.0)
    registers.note_leader(SECOND, 7, 2.0)
    reload = registers.register_if_due(100.0)
    assert hangs.wait(60)
    assert reload is not None
    assert reload.is_alive()
    ends.set()
    reload.join(60)


def test_controller_number_is_zero_without_controller_and_then_stable(tmp_path: Path) -> None:
    folder = tmp_path / "slurmctld"
    assert head.controller_number(str(folder)) == 0, "none runs"
    folder.mkdir()
    first = head.controller_number(str(folder))
    (folder / "leads").write_text("lab-head")
    assert head.controller_number(str(folder)) == first > 0
