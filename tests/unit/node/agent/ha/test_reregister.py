"""A node registers again once after another controller takes over, so that jobs which Slurm believes to run and which
do not are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.ha import reregister
from agent.roles import head

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


def test_once_after_another_head_has_begun_to_lead_and_late_enough_for_young_jobs() -> None:
    asked: list[Sequence[str]] = []
    registers = reregister.Reregistration(lambda argv: asked.append(argv) or 0)
    registers.note_leader(FIRST, 7, 10.0)
    registers.register_if_due(1000.0)
    assert asked == [], "an agent that has just started is no change"
    for at in (1000.0, 1001.0, 1002.0):
        registers.note_leader(SECOND, 7, at)
    registers.register_if_due(1000.0 + reregister.AFTER_S - 1)
    assert asked == []
    for at in (1000.0, 1300.0):
        registers.register_if_due(at + reregister.AFTER_S)
    assert asked == [("systemctl", "reload", "--no-block", "slurmd.service")]


def test_the_same_head_s_controller_that_was_started_again_is_another_one() -> None:
    asked: list[Sequence[str]] = []
    registers = reregister.Reregistration(lambda argv: asked.append(argv) or 0)
    for at, controller in (
        (10.0, 7),
        (11.0, 7),
        (12.0, 0),
        (13.0, 7),
    ):  # 0: none for a moment, and then the one of before
        registers.note_leader(FIRST, controller, at)
    registers.register_if_due(1000.0)
    assert asked == []
    registers.note_leader(FIRST, 0, 1000.0)
    registers.note_leader(FIRST, 8, 1001.0)
    registers.register_if_due(1000.9 + reregister.AFTER_S)
    assert asked == []
    registers.register_if_due(1001.0 + reregister.AFTER_S)
    assert len(asked) == 1


def test_while_both_say_so_it_waits_for_the_end_of_that() -> None:
    asked: list[Sequence[str]] = []
    registers = reregister.Reregistration(lambda argv: asked.append(argv) or 0)
    for at in (10.0, 11.0, 12.0):
        registers.note_leader(FIRST, 7, at)
        registers.note_leader(SECOND, 7, at + 0.1)
    registers.register_if_due(12.0 + reregister.AFTER_S)
    assert asked == []
    registers.register_if_due(12.1 + reregister.AFTER_S)
    assert len(asked) == 1


def test_what_systemd_refuses_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from agent import journal

    journal._said[0] = -1.0
    registers = reregister.Reregistration(lambda argv: 1)
    registers.note_leader(FIRST, 7, 1.0)
    registers.note_leader(SECOND, 7, 2.0)
    registers.register_if_due(100.0)
    assert "systemctl reload --no-block slurmd.service ended with 1" in capsys.readouterr().err


def test_a_controller_that_was_started_again_has_another_number(tmp_path: Path) -> None:
    folder = tmp_path / "slurmctld"
    assert head.controller_number(str(folder)) == 0, "none runs"
    folder.mkdir()
    first = head.controller_number(str(folder))
    (folder / "leads").write_text("lab-head")
    assert head.controller_number(str(folder)) == first > 0
