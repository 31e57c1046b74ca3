"""The difference between the jobs of two readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import compress
from operator import attrgetter, is_not, ne

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.services.read_model.snapshot import Snapshot

BATCH = 250  # jobs that are processed at a time
MAX_CHANGES = 500  # jobs that are removed and inserted one by one


class JobsDiff:
    """The jobs that differ between two readings. An unchanged job is the same object in both.

    Each minute all priorities change, and little else. The changed jobs are therefore also found for each field."""

    def __init__(self, before: Mapping[int, JobState], after: Mapping[int, JobState]) -> None:
        self.before, self.after = before, after
        self.removed = [number for number in before if number not in after]
        self.added = [number for number in after if number not in before]
        self._moved: dict[str, frozenset[int]] = {}

    def changed_in(self, fields: Iterable[str]) -> frozenset[int] | None:
        """Returns the numbers of the jobs that are in both readings and differ in one of these fields; None if they and
        the added and removed jobs are more than MAX_CHANGES."""
        found: frozenset[int] = frozenset()
        for name in fields:
            found |= self._in(name)
            if len(self.removed) + len(self.added) + len(found) > MAX_CHANGES:
                return None
        return found

    def all_changes(self) -> tuple[list[JobState], list[JobState]] | None:
        """Returns (as they were, as they are) for all jobs that changed; a job that is in both readings is in both
        lists. None if there are more than MAX_CHANGES."""
        _, old, new = self._pairs
        if len(self.removed) + len(self.added) + len(new) > MAX_CHANGES:
            return None
        return [*(self.before[n] for n in self.removed), *old], [*(self.after[n] for n in self.added), *new]

    def is_cheap(self, fields: Iterable[str]) -> bool:
        """Returns whether `changed_in` can answer for these fields without comparing thousands of jobs."""
        return len(self._pairs[0]) <= BATCH or self._moved.keys() >= set(fields)

    @cached_property
    def _pairs(self) -> tuple[list[int], list[JobState], list[JobState]]:
        """Returns (numbers, as they were, as they are) of the jobs that are in both readings and have changed."""
        before, both = self.before, [number for number in self.after if number in self.before]
        old, new = [before[number] for number in both], [self.after[number] for number in both]
        others = list(map(is_not, old, new))
        return list(compress(both, others)), list(compress(old, others)), list(compress(new, others))

    def _in(self, name: str) -> frozenset[int]:
        if name not in self._moved:
            numbers, old, new = self._pairs
            of = attrgetter(name)
            self._moved[name] = frozenset(compress(numbers, map(ne, map(of, old), map(of, new))))
        return self._moved[name]


def diff_since(snapshot: Snapshot, before: Mapping[int, JobState]) -> JobsDiff:
    """Returns the difference between the snapshot and earlier jobs. It is computed once per reading and shared by all
    queries."""
    key = ("turnover", id(before))  # the diff holds `before`, so the id is not used for another object
    known: JobsDiff | None = snapshot.derived.get(key)
    if known is None:
        known = snapshot.derived[key] = JobsDiff(before, snapshot.by_id)
    return known
