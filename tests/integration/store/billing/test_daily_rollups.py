"""Reports are equal with and without sums of past days, whatever is written before and after them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import delete

from headway.billing.capacity import cover
from headway.billing.periods import month_period, time_zone
from headway.billing.run_resources import allocations_by_group
from headway.domain.billing.ledger import DAY_S, GroupAllocation, JobRun
from headway.services.billing.ledger import daily_rollups
from headway.store import Store
from headway.store.billing.daily_rollups import HOURS, RUNS, SUMS
from headway.store.billing.run_sums import Only, ReportSpan
from headway.store.billing.usage import SpanUsage
from tests.support.clusters import builders

[MAIN] = builders.cluster(4).groups
LAB = replace(  # a job of two nodes may hold some of each group
    builders.cluster(4),
    groups=tuple(replace(MAIN, name=name, slots=MAIN.slots[at : at + 2]) for at, name in ((0, "a"), (2, "b"))),
)
NODES = sorted(LAB.group_of)
D0 = 20_700 * DAY_S  # midnight in UTC
NOW = D0 + 6 * DAY_S
BY = ("team", "user", "group")


def run(job: int, start: int, end: int, **others: object) -> JobRun:
    fields = {
        "submit": start - 30, "eligible": start - 20, "team": "vision", "user": "alice", "partition": "train",
        "qos": "vision", "state": "COMPLETED" if end else "RUNNING", "nodes": ("lab-1-1",), "gpus": 4, "cpus": 32,
        "memory_mib": 1000, "time_limit_s": 3600, "used_cpu_s": 5, "used_memory_mib": 10,
    }  # fmt: skip
    return JobRun(job=job, start=start, end=end, **{**fields, **others})  # type: ignore[arg-type]


def told(*runs: JobRun, lost_s: int = 0) -> list[tuple[JobRun, list[GroupAllocation], int]]:
    return [(one, allocations_by_group(one, LAB.group_of), lost_s) for one in runs]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await builders.store(tmp_path, builders.Clock())
    yield made
    await made.close()


async def reports(store: Store, now: int = NOW) -> list[object]:
    """All that is made of sums, over stretches that begin and end anywhere."""
    found: list[object] = []
    sets = {("h100", 8): NODES[:3], ("b200", 4): NODES[3:]}
    for start, end in ((D0, D0 + 5 * DAY_S), (D0 + 40_000, D0 + 3 * DAY_S + 7), (D0 - DAY_S, NOW), (D0 + 9, D0 + 99)):
        span = ReportSpan(start, end, now)
        found.append(await store.usage.totals("lab", span, BY))
        found.append(await store.usage.totals("lab", span, ("partition",), Only(teams=("vision",), gpus=(0, 9))))
        cells = await store.usage.unit_seconds("lab", span, ("user",), timed=True)
        found.append(sorted(cells, key=repr))
        for step in (3600, 2700):
            marks = range(start - start % 900, end + step, step)
            whole = await daily_rollups.load_coverage(store, "lab", span, marks)
            allocated = await daily_rollups.load_allocated_seconds_by_day_sums(store, "lab", span, whole)
            found.append({key: seconds for key, seconds in allocated.items() if any(seconds)})
            found.append(await daily_rollups.load_touched_seconds(store, "lab", span, whole, sets))
    found.append(await by_span(store, list(pairwise(range(D0 - DAY_S, NOW + DAY_S, DAY_S))), now))
    found.append(await by_span(store, [(D0 - 9, D0 + 40_000), (D0 + 40_000, D0 + DAY_S), (D0 + DAY_S, NOW - 7)], now))
    return found


async def by_span(store: Store, spans: list[tuple[int, int]], now: int) -> list[SpanUsage]:
    """What was allocated in each span, which is the same as that of one span after the other."""
    told = await store.usage.by_span("lab", spans, now)
    apart: dict[tuple[int, str, str, int], int] = {}
    for start, end in spans:
        for cell in await store.usage.unit_seconds("lab", ReportSpan(start, end, now)):
            key = (start, cell.use.team, cell.group, cell.use.per_node)
            apart[key] = apart.get(key, 0) + cell.use.unit_s
    assert {(u.start, u.team, u.group, u.per_node): u.unit_s for u in told if u.unit_s} == {
        k: s for k, s in apart.items() if s
    }
    return sorted((one for one in told if one.unit_s or one.gpu_s), key=repr)


async def unsummed(store: Store, what: str) -> list[int]:
    return [(day - D0) // DAY_S for day in await store.rollups.missing_days("lab", what, NOW)]


async def summed(store: Store, now: int = NOW + daily_rollups.DELAY_S) -> None:
    while await daily_rollups.sum_days(store, "lab", now):
        pass


@pytest.mark.parametrize("seed", range(4))
async def test_reports_are_equal_with_and_without_daily_sums(store: Store, seed: int) -> None:
    dice = random.Random(seed)
    known: dict[tuple[int, int], JobRun] = {}

    def some() -> JobRun:
        if known and dice.random() < 0.5:
            was = dice.choice(list(known.values()))
            end = was.end or dice.choice((0, was.start, dice.randrange(was.start, NOW)))
            if dice.random() < 0.2:  # accounting says it otherwise now
                end = dice.randrange(was.start, NOW)
            nodes = was.nodes if dice.random() < 0.8 else tuple(sorted(dice.sample(NODES, dice.randint(1, 4))))
            return replace(was, end=end, nodes=nodes, state="COMPLETED" if end else "RUNNING")
        start = D0 + dice.randrange(-DAY_S, 5 * DAY_S)
        seconds = dice.choice((0, 1, 100, 5000, 100_000, 300_000))
        end = 0 if dice.random() < 0.2 else min(start + dice.randint(0, seconds), NOW)
        nodes = tuple(sorted(dice.sample(NODES, dice.randint(1, 4))))
        user, team = dice.choice((("alice", "vision"), ("bob", "speech")))
        return run(dice.randint(1, 20), start, end, nodes=nodes, gpus=dice.choice((0, 1, 8, 16)), team=team, user=user)

    for _ in range(8):
        match dice.choice(("put", "put", "lose", "measure", "end")):
            case "put":
                found = [some() for _ in range(dice.randint(1, 6))]
                known |= {(one.job, one.start): one for one in found}
                await store.runs.save("lab", told(*found, lost_s=dice.choice((0, 0, 50))))
            case "lose" if known:
                one = dice.choice(list(known.values()))
                await store.runs.record_loss("lab", one.job, one.start, dice.randint(0, 500), one.start + 10.0)
            case "measure" if known:
                job, at = dice.choice(list(known))
                hosts = {(job, at, "a"): (700, 90)}
                at += dice.randrange(1, 4000)
                await store.runs.add_measurements("lab", [(job, at, 60, dice.randint(0, 60), 4000)], at, hosts)
            case "end":
                await store.runs.end("lab", (await store.runs.still_running("lab"))[:1], NOW - dice.randrange(DAY_S))
        with_sums = await reports(store)
        async with store.database.write() as db:
            kept = {table: (await db.execute(table.select())).mappings().all() for table in SUMS}
            for table in SUMS:
                await db.execute(delete(table))
        assert with_sums == await reports(store)
        async with store.database.write() as db:
            for table, rows in kept.items():
                if rows:
                    await db.execute(table.insert(), [dict(row) for row in rows])
        await daily_rollups.sum_days(store, "lab", NOW + daily_rollups.DELAY_S, most=dice.randint(0, 4))
    await summed(store)
    assert await unsummed(store, RUNS) == await unsummed(store, HOURS) == []


async def test_only_days_with_changed_sums_are_summed_again(store: Store) -> None:
    long, short = run(1, D0 + 100, 0), run(2, D0 + DAY_S + 5, D0 + 2 * DAY_S + 50)
    await store.runs.save("lab", told(long, short))
    await summed(store)
    assert (await unsummed(store, RUNS), await unsummed(store, HOURS)) == ([], [])
    await store.runs.save("lab", told(long, short))
    await store.runs.add_measurements("lab", [(1, D0 + 5000, 60, 30, 900)], NOW)
    assert (await unsummed(store, RUNS), await unsummed(store, HOURS)) == ([], []), "accounting said the same again"
    await store.runs.save("lab", told(replace(long, end=NOW - DAY_S - 60, state="COMPLETED")))
    assert await unsummed(store, RUNS) == [0], "where it began"
    assert await unsummed(store, HOURS) == [5, 4], "from its end on: it had held all that was before"
    await summed(store)
    await store.runs.add_measurements("lab", [(2, D0 + DAY_S + 65, 60, 30, 900)], NOW)
    await store.runs.record_loss("lab", 2, short.start, 40)
    assert (await unsummed(store, RUNS), await unsummed(store, HOURS)) == ([1], [])
    await store.runs.save("lab", told(run(3, D0 + 3 * DAY_S, D0 + 3 * DAY_S + 9)))
    assert (await unsummed(store, RUNS), await unsummed(store, HOURS)) == ([3, 1], [3])
    assert await daily_rollups.sum_days(store, "lab", D0 + 2 * DAY_S + daily_rollups.DELAY_S) == 1, (
        "only days that are over"
    )
    await store.runs.save("other", told(short))
    assert await unsummed(store, RUNS) == [3], "another cluster's runs"


async def test_change_during_hourly_summing_invalidates_the_day(store: Store) -> None:
    await store.runs.save("lab", told(run(1, D0 + 100, D0 + 200)))
    await store.capacity.begin_day("lab", D0)
    assert await store.capacity.saved_days("lab", D0, NOW) == [], "half made"
    await store.runs.save("lab", told(run(2, D0 + 300, D0 + 400)))
    assert not await store.capacity.save_day("lab", D0, {("h100", "a"): [400] * 48}, {})
    assert await store.capacity.saved_gpu_seconds("lab", [D0]) == []
    assert 0 in await unsummed(store, HOURS)
    await store.capacity.begin_day("lab", D0)
    assert await store.capacity.save_day("lab", D0, {("h100", "a"): [800] * 48}, {"lab-1-1": [200] * 48})
    assert await store.capacity.saved_gpu_seconds("lab", [D0]) == [("h100", "a", D0, [800] * 48)]


async def test_daily_sum_is_not_used_while_one_of_its_runs_was_unfinished(store: Store) -> None:
    """Sums of a day are of no use to who asks up to a moment at which one of its runs had not ended."""
    await store.runs.save("lab", told(run(1, D0 + 100, D0 + 2 * DAY_S), run(2, D0 + 200, D0 + 300)))
    await summed(store)
    [total] = await store.usage.totals("lab", ReportSpan(D0, D0 + DAY_S, NOW), ["team"])
    assert (total.runs, total.gpu_s) == (2, 4 * (DAY_S - 100 + 100))


async def test_daily_sums_are_not_exported_and_are_cleared_by_a_failed_restore(tmp_path: Path, store: Store) -> None:
    await store.runs.save("lab", told(run(1, D0 + 100, D0 + 200)))
    await summed(store)
    rows = [row async for row in store.cluster_records.export("lab")]
    assert {name for name, _ in rows} & {table.name for table in SUMS} == set()

    async def given() -> AsyncIterator[tuple[str, dict[str, object]]]:
        for row in rows:
            yield row
        await summed(other)  # while it is brought
        raise OSError("the disk went away")

    other = await builders.store(tmp_path / "other", builders.Clock())
    try:
        with pytest.raises(OSError, match="the disk went away"):
            await other.cluster_records.restore("lab", given())
        span = ReportSpan(D0, NOW, NOW)
        assert await other.usage.totals("lab", span, ["team"]) == []
        assert await other.capacity.saved_days("lab", D0, NOW) == []
    finally:
        await other.close()


def test_daily_sums_cover_only_zones_aligned_to_half_hours() -> None:
    def known(name: str, count: int) -> tuple[int, list[tuple[int, int]]]:
        october = month_period("2026-10", time_zone(name))
        marks = range(october.start, october.end + 1, 3600)
        first = october.start // DAY_S * DAY_S
        found = cover(marks, october.end, [first + DAY_S * i for i in range(count)])
        return len(found.known), [(at, len(rest) - 1) for at, rest in found.rest]

    assert known("UTC", 31) == (744, [])
    assert known("UTC", 30) == (720, [(720, 24)])
    assert known("Asia/Kolkata", 33) == (744, [])
    assert known("Asia/Kolkata", 2) == (29, [(29, 715)]), "the hour over midnight needs both days"
    assert known("Asia/Kathmandu", 33) == (0, [(0, 744)])


def test_daily_sums_are_not_used_for_an_hour_in_progress() -> None:
    marks = range(D0, D0 + DAY_S + 1, 3600)
    found = cover(marks, D0 + 5000, [D0])
    assert (found.known, found.rest) == ((0,), ((1, marks[1:]),))
    assert found.seconds({D0: 3.0, D0 + 1800: 4.0, D0 + 3600: 9.0}, [[5.0] * 23]) == [7.0] + [5.0] * 23
