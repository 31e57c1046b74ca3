"""When scheduled backups are due and overdue."""

from __future__ import annotations

import pytest

from headway.backup.overdue import OVERDUE_S, RETRY_S, due_at, is_overdue
from headway.domain.operation_kinds import OperationKind
from headway.store import Operation

DAY_S = 86_400.0
NEVER = float("-inf")


def backup(state: str, created_at: float) -> Operation:
    return Operation("op", 1, "lab", "", OperationKind.BACKUP, "headway", {}, {}, state, "", 0.0, 1, created_at)


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (None, 0.0),
        (backup("done", 1000.0), 1000.0 + DAY_S),
        (backup("failed", 1000.0), 1000.0 + RETRY_S),
        (backup("done", 9000.0), 0.0),  # the clock was ahead
    ],
)
def test_backup_is_due_after_its_interval_or_soon_after_a_failure(last: Operation | None, due: float) -> None:
    assert due_at(last, DAY_S, now=2000.0) == due


def test_missing_backup_is_overdue_an_hour_after_it_was_due_and_once_per_interval() -> None:
    late = 1000.0 + DAY_S + OVERDUE_S
    assert not is_overdue(1000.0, NEVER, DAY_S, late)
    assert is_overdue(1000.0, NEVER, DAY_S, late + 1)
    assert not is_overdue(1000.0, late + 1, DAY_S, late + DAY_S)
    assert is_overdue(1000.0, late + 1, DAY_S, late + DAY_S + 2)
    assert is_overdue(1000.0, late + 9 * DAY_S, DAY_S, late + 1), "it was reported while the clock was ahead"
