"""Sums of the usage ledger are the same on PostgreSQL as on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.billing.run_resources import allocations_by_group
from headway.catalog.mig_profiles import lay_out
from headway.domain.billing.ledger import DAY_S, MAX_STORED_INTEGER, CheckpointStats, JobRun
from headway.domain.incident import FaultAction
from headway.domain.machines.gpu_parts import GpuParts
from headway.services.billing.ledger import daily_rollups
from headway.store import Store, open_store
from headway.store.billing.losses import Amount, CutShort, Piece
from headway.store.billing.run_sums import Only, ReportSpan
from headway.store.billing.usage import Behind, Times, run_place
from tests.support.clusters import builders
from tests.support.servers.postgres import BIN, postgres

pytestmark = pytest.mark.skipif(BIN is None, reason="no PostgreSQL here")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture(scope="module")
def key_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the key of the secrets in the module's database."""
    return tmp_path_factory.mktemp("data")


async def test_usage_ledger_sums_match_on_postgres(url: str, key_dir: Path) -> None:
    lab, t0 = builders.cluster(4), 1_790_000_000

    def run(job: int, start: int, end: int, state: str = "COMPLETED") -> JobRun:
        return JobRun(
            job, t0 + start, end and t0 + end, t0 + start, t0 + start - 20, "vision", "alice", "train", "vision", state,
            ("lab-1-1",), 4, 32, 1000, 3600, 5, 10,
        )  # fmt: skip

    store = await open_store(key_dir, url)
    try:
        found = [run(1, -50, 100, "NODE_FAIL"), run(1, 200, 0), run(2, 0, 100)]
        for _ in range(2):
            await store.runs.save(
                "ledger", [(one, allocations_by_group(one, lab.group_of), 0) for one in found], collected_to=t0
            )
        await store.runs.record_loss("ledger", 1, t0 - 50, 30, saved_at=t0 + 70.0)
        await store.runs.add_measurements("ledger", [(2, t0 + 60, 60, 40, 5000)], t0 + 60)
        span = ReportSpan(t0, t0 + 1000, t0 + 300)
        [total] = await store.usage.totals("ledger", span, ["team"])
        assert (total.runs, total.gpu_s, total.lost_gpu_s, total.idle_gpu_s) == (3, 4 * 300, 4 * 30, 4 * 40)
        assert (total.waited_s, total.energy_j, total.unmeasured_gpu_s) == (40, 5000, 4 * 240)
        [cell] = await store.usage.unit_seconds("ledger", span)
        assert (cell.use.unit_s, cell.use.lost_unit_s, cell.use.per_node) == (1200, 120, 8)
        marks = range(t0, t0 + 301, 150)
        begun, ended = [await store.capacity.gpu_changes("ledger", span, marks, ends) for ends in (False, True)]
        assert begun == {("h100", "main"): {-1: (4, 4 * (t0 - 50)), 0: (4, 4 * t0), 1: (4, 4 * (t0 + 200))}}
        assert ended == {("h100", "main"): {0: (8, 8 * (t0 + 100)), 2: (4, 4 * (t0 + 300))}}
        assert sorted(await store.capacity.queue_waits("ledger", span)) == [(4, 20, 2)]
        dear = await store.usage.runs("ledger", span, first="lossy")
        assert [one.job for one in dear] == [2, 1]
        rest = await store.usage.runs("ledger", span, first="lossy", after=run_place(dear[0], "lossy", None))
        assert rest == dear[1:]
        [cell] = await store.usage.unit_seconds("ledger", span, timed=True)
        assert (cell.use.team, cell.times) == ("vision", Times(4 * 300, 4 * 30, 4 * 40, 4 * 40))
        assert await store.usage.groups("ledger") == ["main"]
        await _losses_and_capacity(store, span, marks)
        await _days(store, t0)
    finally:
        await store.close()


async def test_parts_of_gpus_are_summed_on_postgres(url: str, key_dir: Path) -> None:
    """7 runs hold a 3g instance each for an hour: 3 GPU-hours, in single runs and in the sums of their day."""
    t0 = 1_790_000_000 // 86_400 * 86_400
    lab = builders.cluster(1, 0, parts=GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2})))
    found = [
        JobRun(
            job, t0, t0 + 3600, t0, t0, "vision", "alice", "train", "vision", "COMPLETED", ("lab-1-1",), 3 / 7, 4, 1, 60, 5,
            1, gpu_type="3g.40gb",
        )
        for job in range(7)
    ]  # fmt: skip
    store = await open_store(key_dir, url)
    try:
        await store.runs.save("parts", [(one, allocations_by_group(one, lab.group_of), 0) for one in found])
        await store.runs.add_measurements("parts", [(0, t0 + 60, 60, 40, 5000)], t0 + 60)
        span = ReportSpan(t0, t0 + 86_400, t0 + 86_400)
        for _ in range(2):
            [total] = await store.usage.totals("parts", span, ["gpu_type"])
            assert (total.by, total.gpu_s) == (("3g.40gb",), 3 * 3600)
            [cell] = await store.usage.unit_seconds("parts", span)
            assert (cell.use.unit_s, cell.use.per_node) == (7 * 3 * 3600, 56)
            await store.run_sums.save_day("parts", t0)
        [run] = await store.usage.runs_of_job("parts", 3)
        assert run.gpus == pytest.approx(3 / 7)
        assert sorted(await store.capacity.queue_waits("parts", span)) == [(1, 0, 7)]
    finally:
        await store.close()


async def test_long_large_run_is_clipped_exactly_beyond_bigint(url: str, key_dir: Path) -> None:
    """The product of its joules and its seconds, and of its CPUs' seconds with them, exceeds a bigint."""
    t0, life_s, nodes = 1_790_000_000, 2_600_001, tuple(f"lab-1-{i + 1}" for i in range(4))
    cpus, joules, cpu_s = 2_560_000, 7_400_000_000_001, 2_560_000 * 2_600_000
    lab = builders.cluster(4)
    one = JobRun(
        job=1, start=t0, end=t0 + life_s, submit=t0, eligible=t0, team="vision", user="alice", partition="train",
        qos="vision", state="COMPLETED", nodes=nodes, gpus=32, cpus=cpus, memory_mib=1, time_limit_s=None,
        used_cpu_s=0, used_memory_mib=0,
    )  # fmt: skip
    store = await open_store(key_dir, url)
    try:
        await store.runs.save("large", [(one, allocations_by_group(one, lab.group_of), 0)])
        await store.runs.add_measurements("large", [], t0, {(1, t0, "main"): (joules, cpu_s)})
        during = life_s // 2
        [total] = await store.usage.totals("large", ReportSpan(t0, t0 + during, t0 + 2 * life_s), [])
        assert total.energy_j == joules * during // life_s
        assert total.unmeasured_cpu_s == cpus * during - cpu_s * during // life_s
    finally:
        await store.close()


async def test_run_spanning_two_groups_stays_one_run_after_start_changes(url: str, key_dir: Path) -> None:
    t0, nodes = 1_790_000_000, ("lab-1-1", "lab-1-3")
    [main] = builders.cluster(4).groups
    halves = [replace(main, name=name, slots=main.slots[i : i + 2]) for i, name in ((0, "a"), (2, "b"))]
    group_of = {name: group for group in halves for name in group.slots}
    one = JobRun(
        1, t0, 0, t0 - 20, t0 - 20, "vision", "alice", "train", "vision", "RUNNING", nodes, 16, 32, 1, None, 0, 0
    )
    store = await open_store(key_dir, url)
    try:
        await store.runs.save("moved", [(one, allocations_by_group(one, group_of), 0)])
        await store.runs.add_measurements("moved", [(1, t0 + 60, 60, 30, 1001)], t0 + 60)
        assert [(row.group, row.energy_j) for row in await store.usage.runs_of_job("moved", 1)] == [
            ("a", 500),
            ("b", 501),
        ]
        later = replace(one, start=t0 + 90)
        await store.runs.save("moved", [(later, allocations_by_group(later, group_of), 0)])
        rows = await store.usage.runs_of_job("moved", 1)
        assert [(row.start - t0, row.group, row.measured_s) for row in rows] == [(90, "a", 60), (90, "b", 60)]
        assert sum(row.energy_j for row in rows) == 1001
        span = ReportSpan(t0, t0 + 1000, t0 + 300)
        assert await store.capacity.queue_waits("moved", span) == [(16, 110, 1)]
        [total] = await store.usage.totals("moved", span, [], Only(gpus=(9, 64)))
        assert (total.runs, total.gpu_s) == (1, 16 * 210)
        assert await store.usage.runs("moved", span, Only(gpus=(2, 8))) == []
    finally:
        await store.close()


async def test_measures_and_ends_many_runs_at_once(url: str, key_dir: Path) -> None:
    t0, jobs = 1_790_000_000, range(1, 1101)
    lab = builders.cluster(4)
    runs = [
        JobRun(
            job,
            t0,
            0,
            t0,
            t0,
            "vision",
            "alice",
            "train",
            "vision",
            "RUNNING",
            ("lab-1-1", "lab-1-3"),
            4,
            32,
            1,
            None,
            0,
            0,
        )
        for job in jobs
    ]
    store = await open_store(key_dir, url)
    try:
        await store.runs.save("many", [(run, allocations_by_group(run, lab.group_of), 0) for run in runs])
        minutes = [(job, t0 + 60 * at, 60, 30, 10**9 * job) for job in jobs for at in (1, 2)]
        await store.runs.add_measurements(
            "many", minutes, t0 + 120, {(job, t0, "main"): (10**10, 10**10) for job in jobs}
        )
        for job in (1, 501, 1100):
            [found] = await store.usage.runs_of_job("many", job)
            assert (found.measured_s, found.idle_s, found.cpu_measured_s) == (120, 60, 10**10)
            assert found.energy_j == 2 * 10**9 * job + 10**10
        assert (await store.ledger_progress.get("many")).measured_to == t0 + 120
        await store.runs.end("many", await store.runs.still_running("many"), t0 + 130)
        assert await store.runs.still_running("many") == []
        on = await store.capacity.allocations_on("many", [("lab-1-3", t0, t0 + 500)], t0 + 500)
        assert [one.end - t0 for one in on] == [130] * len(jobs)
        assert (await store.ledger_progress.get("many")).longest_s == 130
        await store.checkpoints.record(
            "many", {1: CheckpointStats(MAX_STORED_INTEGER, float(MAX_STORED_INTEGER), 1.0)}, t0
        )
        assert (await store.checkpoints.of_jobs("many", [1]))[1].count == MAX_STORED_INTEGER
    finally:
        await store.close()


async def _losses_and_capacity(store: Store, span: ReportSpan, marks: range) -> None:
    t0, how = span.start, CutShort("NODE_FAIL", "lab-1-1")
    assert await store.losses.totals("ledger", span, Only()) == [(how, Amount("main", 8, 4 * 30, 4 * 30))]
    piece = Piece(1, t0 - 50, "main", 8, 4 * 30, 4 * 30)
    assert await store.losses.largest_losses("ledger", span, Only(), [how, CutShort()], 5) == [(how, piece)]
    assert await store.losses.most_idle("ledger", span, Only(), 5) == [Piece(2, t0, "main", 8, 4 * 40, 4 * 40)]
    await store.jobs.record(
        "ledger", 2, person="ann", user="ann", kind="notebook", request={}, facts={}, audit={"job": 2}
    )
    # a later job with that number is the notebook
    assert await store.losses.idle_notebooks("ledger", span, Only()) == []
    opened = await store.incidents.open("ledger", "lab-1-1", "XID 79", FaultAction.RESET, t0 + 90, {})
    await store.incidents.record_requeued_jobs(opened.number, [1], t0 + 110.0)
    [blamed] = await store.losses.lost_to_incidents("ledger", span, Only(), 120.0)
    assert (blamed.job, blamed.how, blamed.what, blamed.node) == (1, how, "XID 79", "lab-1-1")
    await store.checkpoints.record("ledger", {1: CheckpointStats(3, 30.0, 300.0)}, t0 + 300)
    saved = [row async for row in store.losses.with_checkpoints("ledger", span, Only(), 2)]
    assert [(row.job, row.start - t0, row.saves) for row in saved] == [(1, -50, 3), (1, 200, 3)]
    on = await store.capacity.allocations_on("ledger", [("lab-1-1", t0 + 50, t0 + 250)], span.now)
    assert sorted((one.start - t0, one.end - t0, one.units) for one in on) == [
        (50, 100, 4),
        (50, 100, 4),
        (200, 250, 4),
    ]
    many = tuple((job, t0) for job in range(10, 20_010))
    [left] = list(await store.usage.runs("ledger", span, Only(), first="lossy", behind=Behind(idle=True, but=many)))
    assert (left.job, left.start) == (2, t0)
    told = await store.usage.runs(
        "ledger", span, Only(), first="lossy", behind=Behind(lost=True, runs=(*many, (1, t0 - 50)))
    )
    assert [(one.job, one.start) for one in told] == [(1, t0 - 50)]
    touched = await store.capacity.busy_stretches("ledger", ["lab-1-1"], span, marks)
    assert sorted((one.began_in, one.ended_in, one.count, one.began, one.ended) for one in touched) == [
        (-1, 0, 1, -50, 100), (1, 2, 1, 200, 300),
    ]  # fmt: skip
    assert {type(one.began) for one in touched} == {int}, "reports count on with floats, which decimals don't go with"


async def _days(store: Store, t0: int) -> None:
    """Sums of days equal those of single runs, until one of the runs changes."""
    day = t0 // DAY_S * DAY_S
    span, marks = ReportSpan(day, day + DAY_S, t0 + 2 * DAY_S), range(day, day + DAY_S + 1, 3600)

    async def told() -> tuple[object, ...]:
        whole = await daily_rollups.load_coverage(store, "ledger", span, marks)
        touched = await daily_rollups.load_touched_seconds(store, "ledger", span, whole, {("h100", 8): ["lab-1-1"]})
        cells = await store.usage.unit_seconds("ledger", span, timed=True)
        return (
            await store.usage.totals("ledger", span, ["team"]),
            cells,
            await daily_rollups.load_allocated_seconds_by_day_sums(store, "ledger", span, whole),
            touched,
        )

    before = await told()
    assert await daily_rollups.sum_days(store, "ledger", span.now, most=99) > 0
    assert await store.capacity.saved_days("ledger", day, span.end) == [day]
    assert await told() == before
    await store.runs.record_loss("ledger", 1, t0 - 50, 60)
    [total] = await store.usage.totals("ledger", span, ["team"])
    assert total.lost_gpu_s == 4 * 60
    await store.capacity.begin_day("ledger", day)
    await store.runs.end("ledger", [(1, t0 + 200)], t0 + 300)
    assert not await store.capacity.save_day("ledger", day, {}, {})
