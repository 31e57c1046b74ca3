"""The difference between the jobs of two readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import compress
from operator import attrgetter, is_not, ne

from headway.domain.slurm.state import JobState
from headway.services.read_model.snapshot import Snapshot

BATCH = 250  # jobs that are looked at at a time
MAX_CHANGES = 500  # jobs that are taken out and put in one by one


class JobsDiff:
    """Between two readings. A job that did not change is the very same object in both.

    Each minute all priorities are others, and little else: so it is also known of each field which jobs it is another of.
    """

    def __init__(self, before: Mapping[int, JobState], after: Mapping[int, JobState]) -> None:
        self.before, self.after = before, after
        self.removed = [number for number in before if number not in after]
        self.added = [number for number in after if number not in before]
        self._moved: dict[str, frozenset[int]] = {}

    def changed_in(self, fields: Iterable[str]) -> frozenset[int] | None:
        """Numbers of the jobs that are in both, and differ in one of these; None where with those that have come or gone
        they are more than MOST_NEWS."""
        found: frozenset[int] = frozenset()
        for name in fields:
            found |= self._in(name)
            if len(self.removed) + len(self.added) + len(found) > MAX_CHANGES:
                return None
        return found

    def all_changes(self) -> tuple[list[JobState], list[JobState]] | None:
        """(as they were, as they are) of all jobs with news: one that changed is in both. None where they are more."""
        _, old, new = self._pairs
        if len(self.removed) + len(self.added) + len(new) > MAX_CHANGES:
            return None
        return [*(self.before[n] for n in self.removed), *old], [*(self.after[n] for n in self.added), *new]

    def is_cheap(self, fields: Iterable[str]) -> bool:
        """Whether `few` of these is answered without comparing thousands of jobs."""
        return len(self._pairs[0]) <= BATCH or self._moved.keys() >= set(fields)

    @cached_property
    def _pairs(self) -> tuple[list[int], list[JobState], list[JobState]]:
        """(numbers, as they were, as they are) of the jobs that are in both and no longer the same."""
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
    """Looked for once a reading: all questions of the one before ask it."""
    key = ("turnover", id(before))  # which it holds, so that no other one has the same
    known: JobsDiff | None = snapshot.derived.get(key)
    if known is None:
        known = snapshot.derived[key] = JobsDiff(before, snapshot.by_id)
    return known
