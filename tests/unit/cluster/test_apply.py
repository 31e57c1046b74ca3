"""Which of the planned changes an apply carries out."""

from __future__ import annotations

from typing import Any

from headway.cluster.apply import without_restarts
from headway.domain.changeset import RESTART, Change, ChangeSet, Disturbs


async def test_machines_that_do_not_answer_are_left_out_with_a_warning() -> None:
    reports: list[tuple[str, str, dict[str, Any]]] = []

    async def report(step: str, text: str, **about: Any) -> None:
        reports.append((step, text, about))

    write = Change("file.write", "lab-1-1", "/etc/motd", "is missing")
    silent = [Change(RESTART, name, name, "does not answer", Disturbs.JOBS) for name in ("lab-1-2", "lab-1-3")]
    left = await without_restarts(ChangeSet("lab", (write, *silent)), report)
    assert left.changes == (write,)
    assert [(step, about["level"]) for step, _, about in reports] == [("lab-1-[2-3]", "warning")]
    assert await without_restarts(left, report) == left
    assert len(reports) == 1
