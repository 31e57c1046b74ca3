"""Reservations of the cluster file are those of Slurm, and follow it; one that a person has made stays."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.lab import Lab

SPEC = Path(__file__).parents[1] / "lab.yaml"
# In 2090, so that they keep no other test's jobs waiting
WINDOW = 'window: {start: "2090-01-02T22:00", duration: "06:00:00", maintenance: true}'
CLASS = 'class: {start: "2090-01-04T09:00", duration: "02:00:00", repeat: weekly, nodes: [lab-1-1], teams: [vision]}'
CHANGED = 'class: {start: "2090-01-04T10:00", duration: "01:00:00", repeat: daily, nodes: [lab-1-2], users: [sam]}'


def applied(lab: Lab, *reservations: str) -> list[str]:
    """Applies the cluster with these reservations. Returns those of Slurm; asserts that a plan then has no change."""
    file = SPEC.parent / f".reservations-{lab.name}.yaml"
    rows = "".join(f"  {text}\n" for text in reservations)
    try:
        file.write_text(SPEC.read_text() + (f"reservations:\n{rows}" if rows else ""))
        lab.cli("apply", str(file), "--yes")
        assert "nothing to change" in lab.cli("plan", str(file)).out
    finally:
        file.unlink()
    return [line for line in lab.head("scontrol", "-o", "show", "reservation").out.splitlines() if "=" in line]


def test_reservations_follow_the_file(lab: Lab) -> None:
    by_hand = ["ReservationName=byhand", "Users=root", "Nodes=lab-2-1", "StartTime=2090-03-01", "Duration=60"]
    lab.head("scontrol", "create", "reservation", *by_hand)
    try:
        shown = {line.split()[0].partition("=")[2]: line for line in applied(lab, WINDOW, CLASS)}
        assert "StartTime=2090-01-02T22:00:00 EndTime=2090-01-03T04:00:00" in shown["window"]
        assert "Flags=MAINT,IGNORE_JOBS" in shown["window"]
        assert "Nodes=lab-1-1 " in shown["class"]
        assert "Accounts=vision" in shown["class"]
        assert "WEEKLY" in shown["class"]

        (changed,) = (line for line in applied(lab, CHANGED) if "=class " in line)
        assert "StartTime=2090-01-04T10:00:00 EndTime=2090-01-04T11:00:00" in changed
        assert "Nodes=lab-1-2 " in changed
        assert "Users=sam" in changed
        assert "DAILY" in changed
        assert "WEEKLY" not in changed

        (left,) = applied(lab)
        assert left.startswith("ReservationName=byhand ")
    finally:
        lab.head("scontrol", "delete", "ReservationName=byhand", check=False)
