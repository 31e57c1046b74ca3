"""What a replay printed, and the figures of it."""

from __future__ import annotations

import pytest

from headway.errors import CommandFailed, Refused
from headway.whatif.figures import figures
from headway.whatif.outcome import JobRun, read_outcome, real_runs
from headway.whatif.trace import Trace, TraceJob
from tests.unit.whatif.clusters import lab

_A = TraceJob("11", "alice", "vision", 1_795_000_000, 1, 8, 3600, gpus=4)
_B = TraceJob("12", "sam", "speech", 1_795_000_000, 2, 8, 3600, gpus=8, start=1_795_000_060)
_LINES = (
    "time\t1795000000\t1\t0\n",
    "refused\tj2\tJob violates accounting/QOS policy\n",
    "left\tj1\twaits\tResources\n",
    "job\tJobId=1 UserId=alice(20001) Name=j0 JobState=COMPLETED StartTime=2026-11-18T11:06:41 EndTime=2026-11-18T12:06:41 "
    "NodeList=lab-l01-n[01-02] NodeCnt=2 Account=vision\n",
    "job\tJobId=2 UserId=sam(20003) Name=j1 JobState=CANCELLED StartTime=2026-11-18T11:06:41 "
    "EndTime=2026-11-18T11:06:41 NodeList=(null)\n",
)
_JOBS = {"j0": _A, "j1": _B, "j2": _B}


def test_an_outcome_has_runs_and_why_others_have_none() -> None:
    found = read_outcome(_JOBS, [*_LINES, "done\t1795009999\t1\t1\n"])
    (run,) = found.runs
    assert (run.job, run.start, run.end - run.start) == (_A, 1_795_000_001, 3600)
    assert run.nodes == ("lab-l01-n01", "lab-l01-n02")
    assert found.never == {"Resources": ["12"]}
    assert found.refused == {"Job violates accounting/QOS policy": ["12"]}


def test_a_replay_that_ended_early_or_failed_is_an_error() -> None:
    with pytest.raises(CommandFailed, match="ended early"):
        read_outcome(_JOBS, _LINES)
    with pytest.raises(Refused, match="MariaDB did not start"):
        read_outcome(_JOBS, ["failed\tMariaDB did not start\n"])


def test_figures_of_a_window() -> None:
    cluster = lab()
    one, two, *_ = cluster.slot_names
    late = TraceJob("13", "vera", "vision", _A.submit + 7200, 1, 8, 60, gpus=8)
    trace = Trace((_A, _B, late))
    runs = [
        JobRun(_A, _A.submit, _A.submit + 3600, (one,)),
        JobRun(_B, _B.submit + 1800, _B.submit + 5400, (two, cluster.slot_names[2])),
        JobRun(late, late.submit + 100, late.submit + 160, (one,)),
    ]
    found = figures(cluster, trace, runs)
    assert found.utilisation == pytest.approx((4 * 3600 + 16 * 3600) / (32 * 7200))
    # four GPUs of the first node are free for half an hour while the second job waits
    assert found.fragmentation == pytest.approx(4 * 1800 / (32 * 7200))
    assert found.last_end_s == 7360
    assert [(row.team, row.size, row.median_s) for row in found.waits] == [
        ("speech", "9-64 GPUs", 1800),
        ("vision", "2-8 GPUs", 0),
        ("all", "all", 100),
    ]
    price = float(cluster.groups[0].price_usd_per_node_hour)
    assert found.usd == pytest.approx(4 * price * 2)
    assert found.usd_per_gpu_hour == pytest.approx(found.usd / 20)


def test_what_really_was_has_no_nodes() -> None:
    found = figures(lab(), Trace((_B,)), real_runs([_A, _B]))
    assert found.fragmentation is None
    assert [row.median_s for row in found.waits] == [60, 60]
