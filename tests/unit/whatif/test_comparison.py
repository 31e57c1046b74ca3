"""The answer of a what-if, and its changes in words."""

from __future__ import annotations

from collections import Counter

from headway.whatif.changes import Changes
from headway.whatif.comparison import MOST_STARTS, compare_replays
from headway.whatif.outcome import JobRun, Outcome
from headway.whatif.trace import Trace, TraceJob
from tests.unit.whatif.clusters import lab

_AT = 1_795_000_000
_JOB = TraceJob("11", "alice", "vision", _AT, 1, 8, 3600, gpus=4, start=_AT + 600, end=_AT + 4200)


def _outcome(wait_s: int, job: TraceJob = _JOB) -> Outcome:
    return Outcome([JobRun(job, _AT + wait_s, _AT + wait_s + 3600, ("lab-l01-n01",))], {"Resources": ["12"]})


def test_what_was_and_both_replays_are_next_to_each_other() -> None:
    trace = Trace((_JOB,), Counter({"it ran for no time": 2}))
    found = compare_replays(trace, [("present", lab(), _outcome(610)), ("changed", lab(nodes=8), _outcome(5))])
    assert {name: one.waits[-1].median_s for name, one in found.figures.items()} == {
        "real": 600,
        "present": 610,
        "changed": 5,
    }
    assert found.figures["changed"].usd == 2 * found.figures["real"].usd
    assert found.starts["changed"] == {"11": _AT + 5}
    assert found.never_started["present"] == {"Resources": ["12"]}
    assert found.left_out == {"it ran for no time": 2}


def test_starts_of_many_jobs_are_left_out() -> None:
    trace = Trace((_JOB,) * (MOST_STARTS + 1))
    found = compare_replays(trace, [("present", lab(), _outcome(0))])
    assert (found.jobs, found.starts) == (MOST_STARTS + 1, {})


def test_changes_in_words() -> None:
    changes = Changes(("+4", "cpu=-1"), ("vision=16", "speech=none"), {"slurm": {}})
    assert changes.in_words == [
        "nodes +4",
        "nodes cpu -1",
        "at most 16 GPUs for vision",
        "no cap for speech",
        "policy: slurm",
    ]
