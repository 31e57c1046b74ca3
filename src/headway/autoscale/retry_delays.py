"""How long a group waits after its machines could not be created, could not be deleted, or would exceed its budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_WAIT_S = 60.0
LONGEST_WAIT_S = 1800.0


def retry_delay_s(failures: int) -> float:
    """Returns the delay after so many failures in a row: 1 min, 2 min, 4 min, ..., at most 30 min."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** max(0, failures - 1))


@dataclass
class CreationBackoff:
    """The groups whose last try to create machines failed. Times are in unix seconds."""

    failures: dict[str, int] = field(default_factory=dict)  # group -> failed tries in a row
    failed_at: dict[str, float] = field(default_factory=dict)  # group -> time of the last failed try
    not_before: dict[str, float] = field(default_factory=dict)  # group -> earliest time of the next try

    def waiting_groups(self, now: float) -> set[str]:
        """Returns the groups that create no machine yet."""
        return {group for group, at in self.not_before.items() if now < at}

    def record_failure(self, group: str, requested_at: float, now: float) -> tuple[int, float]:
        """Returns (failed tries in a row, earliest time of the next try). Machines requested together, such as those of
        one job, count as one try: `requested_at` is when the creation began."""
        if requested_at > self.failed_at.get(group, 0.0):
            self.failures[group] = self.failures.get(group, 0) + 1
            self.not_before[group] = now + retry_delay_s(self.failures[group])
            self.failed_at[group] = now
        self.not_before[group] = max(self.not_before[group], now + retry_delay_s(1))
        return self.failures[group], self.not_before[group]

    def record_success(self, group: str) -> None:
        """Forgets the failures of a group."""
        for row in (self.failures, self.failed_at, self.not_before):
            row.pop(group, None)
