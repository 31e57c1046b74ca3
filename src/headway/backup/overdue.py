"""When a scheduled backup is due, and when it is overdue, so that Headway reports it. Times are Unix seconds."""

from __future__ import annotations

from headway.store import Operation

RETRY_S = 600.0  # seconds until the next try after a failure
OVERDUE_S = 3600.0  # seconds after which a backup that is due counts as overdue


def due_at(last: Operation | None, every_s: float, now: float) -> float:
    """Returns when the next scheduled backup is due; `last` is the last one, which has ended. After a failure it is due again
    after RETRY_S seconds at most."""
    # A backup of a later time than now was made while the clock was ahead: one may be due now.
    if last is None or last.created_at > now:
        return 0.0
    return last.created_at + (every_s if last.state == "done" else min(every_s, RETRY_S))


def is_overdue(done_at: float, reported_at: float, every_s: float, now: float) -> bool:
    """Returns whether a missing backup is to be reported. `done_at`: when the last one was queued that succeeded, or when the
    schedule was first seen. `reported_at`: when that was last reported, which is done once in `every_s` seconds; a
    time later than now does not count."""
    told_at = reported_at if reported_at <= now else float("-inf")
    return now > max(done_at + OVERDUE_S, told_at) + every_s
