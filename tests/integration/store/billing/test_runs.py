"""Each run is stored once, and the database's sums equal sums computed by hand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from headway.billing import goodput
from headway.billing.run_resources import allocations_by_group
from headway.domain.billing.ledger import GroupAllocation, JobRun, MachineLifetime, NodeSpan, SpanKind
from headway.domain.cluster import Cluster
from headway.errors import Conflict
from headway.store import Store
from headway.store.billing.run_sums import Only, ReportSpan
from headway.store.billing.usage import BY_SIZE, Behind, Order, RunRow, Times, run_place
from tests.support.clusters import builders

LAB = builders.cluster(4)
H = 3600
T0 = 1_790_000_000


def run(job: int, start: int, end: int, **others: object) -> JobRun:
    fields = {
        "submit": T0 + start - 30, "eligible": T0 + start - 20, "team": "vision", "user": "alice", "partition": "train",
        "qos": "vision", "state": "COMPLETED" if end else "RUNNING", "nodes": ("lab-1-1",), "gpus": 4, "cpus": 32,
        "memory_mib": 1000, "time_limit_s": 3600, "used_cpu_s": 5, "used_memory_mib": 10,
    }  # fmt: skip
    return JobRun(job=job, start=T0 + start, end=end and T0 + end, **{**fields, **others})  # type: ignore[arg-type]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await builders.store(tmp_path, builders.Clock())
    yield made
    await made.close()


async def put(store: Store, *runs: JobRun, cluster: str = "lab", of: Cluster = LAB, **mark: int) -> None:
    await store.runs.save(cluster, [(one, allocations_by_group(one, of.group_of), 0) for one in runs], **mark)


async def test_repeated_record_is_stored_once_and_a_requeue_is_a_new_run(store: Store) -> None:
    first = run(7, 0, 100, state="REQUEUED")
    await put(store, first, run(7, 200, 0))
    await put(store, first, run(7, 200, 300), run(7, 200, 300))
    found = await store.usage.runs("lab", ReportSpan(T0, T0 + H, T0 + H))
    assert [(one.job, one.start - T0, one.end - T0) for one in found] == [(7, 200, 300), (7, 0, 100)]
    [total] = await store.usage.totals("lab", ReportSpan(T0, T0 + H, T0 + H), ["team"])
    assert (total.by, total.runs, total.gpu_s, total.waited_s, total.waited_gpu_s) == (("vision",), 2, 4 * 200, 40, 160)


@pytest.mark.parametrize(
    ("first", "behind"),
    [
        ("latest", None),
        ("lossy", None),
        ("waited", None),
        ("longest", None),
        ("largest", None),
        ("gpu_time", None),
        ("latest", Behind(lost=True)),
        ("latest", Behind(idle=True)),
    ],
)
async def test_run_pages_stay_stable_while_new_runs_are_added(
    store: Store, first: Order, behind: Behind | None
) -> None:
    """Many are alike in what the list has the most of first."""
    both = ("lab-1-1", "lab-1-3")
    halves = [
        replace(LAB.groups[0], name=name, slots=LAB.groups[0].slots[i : i + 2]) for i, name in ((0, "a"), (2, "b"))
    ]
    lab = replace(LAB, groups=tuple(halves))
    await put(store, *(run(job, 60 * (job // 3), 1200, nodes=both) for job in range(1, 13)), of=lab)
    for job in range(1, 13):
        await store.runs.record_loss("lab", job, T0 + 60 * (job // 3), 10 * (job % 3))
    await store.runs.add_measurements(
        "lab", [(job, T0 + 60 * (job // 3) + 300, 300, 30 * (job % 2), 0) for job in range(1, 13)], T0 + H
    )
    span = ReportSpan(T0, T0 + H, T0 + H)
    every = await store.usage.runs("lab", span, first=first, behind=behind)
    assert len(every) > 6
    read: list[RunRow] = []
    while page := await store.usage.runs(
        "lab",
        span,
        first=first,
        behind=behind,
        after=run_place(read[-1], first, behind, span.now) if read else None,
        limit=3,
    ):
        read += page
        number = 100 + len(read)
        if first in BY_SIZE:  # longer and larger than all others
            await put(store, run(number, 0, 3000, gpus=64))
            continue
        await put(store, run(number, 900, 1300, eligible=T0 - 9 * H))
        await store.runs.record_loss("lab", number, T0 + 900, 400)
        await store.runs.add_measurements("lab", [(number, T0 + 1300, 400, 390, 0)], T0 + H)
    assert [(one.job, one.group) for one in read] == [(one.job, one.group) for one in every]


async def test_stored_allocations_are_kept_when_the_cluster_file_changes(store: Store) -> None:
    """Two groups become one node of a third with another plan: what ran on the others ran there, and costs what it did."""
    [main] = LAB.groups
    a, b = (replace(main, name=name, slots=main.slots[i : i + 2]) for i, name in ((0, "a"), (2, "b")))
    plan = replace(main.plan, name="b200-4", gpu_type="b200", gpus=4)
    before, after = (
        replace(LAB, groups=(a, b)),
        replace(LAB, groups=(replace(main, name="c", plan=plan, slots=main.slots[:1]),)),
    )
    wide = run(1, 0, 0, nodes=("lab-1-1", "lab-1-3"), gpus=16)
    await put(store, wide, run(2, 0, 100, nodes=("lab-1-4",)), of=before)
    await store.runs.add_measurements("lab", [(1, T0 + 60, 60, 20, 900)], T0 + 60)
    span = ReportSpan(T0, T0 + H, T0 + 100)

    async def told() -> object:
        cells = [
            (cell.group, cell.use.team, cell.use.per_node, cell.use.unit_s)
            for cell in await store.usage.unit_seconds("lab", span)
        ]
        on = [
            (one.node, one.units, one.per_node)
            for one in await store.capacity.allocations_on("lab", [("lab-1-3", T0, T0 + 50)], T0 + 100)
        ]
        [total] = await store.usage.totals("lab", span, ["gpu_type"])
        return sorted(cells), on, (total.by, total.runs, total.gpu_s, total.energy_j)

    known = await told()
    assert known == (
        [("a", "vision", 8, 800), ("b", "vision", 8, 1200)], [("lab-1-3", 8, 8)], (("h100",), 2, 2000, 900)
    )  # fmt: skip
    await store.runs.collect_again("lab")
    await put(store, replace(wide, end=T0 + 100, state="COMPLETED"), run(2, 0, 100, nodes=("lab-1-4",)), of=after)
    assert await told() == known
    assert [(one.group, one.state) for one in await store.usage.runs_of_job("lab", 1)] == [
        ("a", "COMPLETED"),
        ("b", "COMPLETED"),
    ]
    # One that begins now is of the file that is now.
    await put(store, run(3, 50, 100, nodes=("lab-1-1",)), of=after)
    assert [(one.group, one.gpu_type) for one in await store.usage.runs_of_job("lab", 3)] == [("c", "b200")]


async def test_run_with_changed_nodes_is_counted_once(store: Store) -> None:
    [main] = LAB.groups
    a, b = (replace(main, name=name, slots=main.slots[i : i + 2]) for i, name in ((0, "a"), (2, "b")))
    both = replace(LAB, groups=(a, b))
    await put(store, run(1, 0, 0, nodes=("lab-1-1", "lab-1-3"), gpus=16), of=both)
    await store.runs.add_measurements("lab", [(1, T0 + 60, 60, 20, 900)], T0 + 60, {(1, T0, "b"): (100, 7)})
    await put(store, run(1, 0, 100, nodes=("lab-1-3",), gpus=8), of=both)
    [found] = await store.usage.runs_of_job("lab", 1)
    assert (found.group, found.gpus, found.measured_s, found.idle_s) == ("b", 8, 60, 20)
    assert (found.energy_j, found.cpu_measured_s) == (1000, 7), "what its nodes drew together"
    assert await store.capacity.allocations_on("lab", [("lab-1-1", T0, T0 + 50)], T0 + 100) == []
    [total] = await store.usage.totals("lab", ReportSpan(T0, T0 + H, T0 + H), [])
    assert (total.runs, total.gpu_s) == (1, 800)


async def test_run_on_an_unknown_node_gets_its_group_later(store: Store) -> None:
    [main] = LAB.groups
    await put(store, run(1, 0, 0), of=replace(LAB, groups=(replace(main, slots=main.slots[1:]),)))
    assert [one.group for one in await store.usage.runs_of_job("lab", 1)] == [""]
    await put(store, run(1, 0, 0))
    assert [(one.group, one.units) for one in await store.usage.runs_of_job("lab", 1)] == [("main", 4)]


async def test_wait_of_a_run_over_two_groups_is_counted_once(store: Store) -> None:
    parts = [GroupAllocation(group, (f"lab-{group}",), "h100", 8, 64, 8, 8) for group in ("a", "b")]
    await store.runs.save("lab", [(run(7, 0, 100, gpus=16), parts, 0)])
    for span in (ReportSpan(T0, T0 + H, T0 + H), ReportSpan(T0, T0 + 50, T0 + H)):  # whole, and cut
        [total] = await store.usage.totals("lab", span, ["team"])
        assert (total.runs, total.waited_s, total.waited_gpu_s) == (1, 20, 16 * 20)
        assert (
            sum(cell.times.waited_gpu_s for cell in await store.usage.unit_seconds("lab", span, timed=True)) == 16 * 20
        )


async def test_gpu_energy_is_split_between_groups_by_gpu_count(store: Store) -> None:
    """Else one of two groups looks as if it drew all of it, and the other nothing."""
    sizes = {"a": 8, "b": 2, "c": 0}
    parts = [GroupAllocation(group, (f"lab-{group}",), "h100", gpus, 64, gpus, 8) for group, gpus in sizes.items()]
    await store.runs.save("lab", [(run(7, 0, 0, gpus=10), parts, 0)])
    for minute in (1, 2):
        await store.runs.add_measurements("lab", [(7, T0 + 60 * minute, 60, 30, 1001)], T0 + 60 * minute)
    found = {one.group: one for one in await store.usage.runs_of_job("lab", 7)}
    assert {name: one.energy_j for name, one in found.items()} == {"a": 1600, "b": 402, "c": 0}
    assert {(one.measured_s, one.idle_s) for one in found.values()} == {(120, 60)}


async def test_running_job_counts_until_now_within_the_span(store: Store) -> None:
    await put(store, run(1, 0, 0), run(2, -500, 5000, user="bob"))
    found = await store.usage.totals("lab", ReportSpan(T0, T0 + 1000, T0 + 600), ["user"])
    assert [(one.by[0], one.gpu_s) for one in found] == [("alice", 4 * 600), ("bob", 4 * 600)]
    found = await store.usage.totals("lab", ReportSpan(T0, T0 + 1000, T0 + 9000), ["user"])
    assert [(one.by[0], one.gpu_s, one.runs) for one in found] == [("alice", 4000, 1), ("bob", 4000, 1)]
    assert await store.runs.still_running("lab") == [(1, T0)]


async def test_measurements_survive_a_new_collection_from_accounting(store: Store) -> None:
    await put(store, run(1, 0, 0))
    await store.runs.add_measurements("lab", [(1, T0 + 60, 60, 20, 900), (99, T0, 60, 0, 0)], T0 + 60)
    await store.runs.record_loss("lab", 1, T0, 50, saved_at=T0 + 50.5)
    await store.runs.collect_again("lab")
    await put(store, run(1, 0, 100, state="NODE_FAIL"))
    [found] = await store.usage.runs_of_job("lab", 1)
    assert (found.measured_s, found.idle_s, found.energy_j, found.lost_s, found.state) == (60, 20, 900, 50, "NODE_FAIL")
    assert (await store.ledger_progress.get("lab")).measured_to == T0 + 60
    assert (await store.ledger_progress.get("lab")).collected_to == 0


async def test_node_energy_is_stored_per_run_and_the_rest_is_unmeasured(store: Store) -> None:
    await put(store, run(1, 0, 100), run(2, 50, 0, gpus=0, cpus=8), run(3, -900, -500), cluster="lab")
    await put(store, run(4, 0, 100), cluster="other")
    allocated = await store.runs.allocations("lab", T0 + 40, T0 + 100)
    assert [(one.job, one.end and one.end - T0, one.nodes, one.cpus) for one in sorted(allocated, key=lambda one: one.job)] == [
        (1, 100, ("lab-1-1",), 32), (2, 0, ("lab-1-1",), 8),
    ]  # fmt: skip
    hosts = {(1, T0, "main"): (500, 32 * 60), (2, T0 + 50, "main"): (70, 8 * 50), (9, T0, "main"): (1, 1)}
    await store.runs.add_measurements("lab", [(1, T0 + 60, 60, 0, 900)], T0 + 100, hosts)
    await put(store, run(1, 0, 100))
    whole = await store.usage.totals("lab", ReportSpan(T0, T0 + H, T0 + 150), ["user"], Only())
    [total] = whole
    assert (total.energy_j, total.unmeasured_gpu_s, total.unmeasured_cpu_s) == (1470, 4 * 40, 32 * 40 + 8 * 50)
    [half] = await store.usage.totals("lab", ReportSpan(T0, T0 + 50, T0 + 150), ["user"])
    assert (half.energy_j, half.unmeasured_cpu_s) == (700, 32 * 20)
    [found] = await store.usage.runs_of_job("lab", 1)
    assert (found.energy_j, found.cpu_measured_s) == (1400, 1920)


async def test_minute_sample_is_split_between_runs_of_the_job(store: Store) -> None:
    """A job that ended within it, and began again: both are measured to the second, and nothing is left to be estimated."""
    await put(store, run(1, -30, 20, state="REQUEUED"), run(1, 45, 130))
    minutes = [(1, T0 + at, 60, 60 if at == 60 else 0, 6000) for at in (0, 60, 120, 180)]
    await store.runs.add_measurements("lab", minutes, T0 + 180)
    first, again = await store.usage.runs_of_job("lab", 1)
    assert (first.measured_s, first.idle_s, first.energy_j) == (50, 20, 5000)
    assert (again.measured_s, again.idle_s, again.energy_j) == (85, 15, 8500)
    [total] = await store.usage.totals("lab", ReportSpan(T0 - H, T0 + H, T0 + H), [])
    assert total.unmeasured_gpu_s == 0
    await put(store, run(2, 0, 60, user="bob"))
    await store.runs.add_measurements("lab", [(2, T0 + 60, 60, 60, None)], T0 + 180)
    [bob] = await store.usage.totals("lab", ReportSpan(T0 - H, T0 + H, T0 + H), [], Only(user="bob"))
    assert (bob.idle_gpu_s, bob.unmeasured_gpu_s) == (240, 240), "GPUs that say what they do, and not what they draw"


async def test_run_missing_from_accounting_ends_when_last_seen(store: Store) -> None:
    await put(store, run(1, 0, 0))
    await store.runs.end("lab", [(1, T0)], T0 + 60)
    [found] = await store.usage.runs_of_job("lab", 1)
    assert (found.end - T0, found.state) == (60, "UNKNOWN")
    assert await store.runs.still_running("lab") == []


async def test_run_whose_start_moved_after_it_was_taken_for_ended_is_one_run(store: Store) -> None:
    await put(store, run(1, 0, 0, submit=T0 - 60))
    await store.runs.end("lab", [(1, T0)], T0 + 60)
    await put(store, run(1, 90, 0, submit=T0 - 60))
    assert [(one.start - T0, one.state) for one in await store.usage.runs_of_job("lab", 1)] == [(90, "RUNNING")]


async def test_forgotten_long_run_counts_in_its_last_hour(store: Store) -> None:
    await put(store, run(1, 0, 0), run(2, 8 * H, 8 * H + 60))
    await store.runs.end("lab", [(1, T0)], T0 + 10 * H)
    span = ReportSpan(T0 + 9 * H, T0 + 20 * H, T0 + 20 * H)
    assert [total.gpu_s for total in await store.usage.totals("lab", span, [])] == [4 * H]
    assert [one.job for one in await store.usage.runs("lab", span)] == [1]


async def test_runs_of_two_clusters_are_separate(store: Store) -> None:
    await put(store, run(1, 0, 100))
    await put(store, run(1, 0, 50), cluster="other")
    span = ReportSpan(T0, T0 + H, T0 + H)
    assert [total.gpu_s for total in await store.usage.totals("other", span, [])] == [200]
    assert [total.gpu_s for total in await store.usage.totals("lab", span, ["team"], Only(teams=("vision",)))] == [400]
    assert await store.usage.totals("lab", span, ["team"], Only(teams=())) == []


RUNS = st.lists(
    st.tuples(
        st.integers(-2 * H, 3 * H), st.integers(0, 4 * H), st.booleans(), st.sampled_from([0, 1, 8, 16]),
        st.integers(0, 2 * H), st.integers(0, 5 * H),
    ).filter(lambda one: one[2] or one[0] + one[1] != 0),  # an end at 0 is none
    max_size=12,
)  # fmt: skip


@given(RUNS, st.integers(0, H), st.integers(1, 2 * H), st.integers(0, 4 * H))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_usage_totals_match_independent_sums(
    store: Store, given_runs: list[tuple[int, int, bool, int, int, int]], start: int, length: int, now: int
) -> None:
    name = f"c{abs(hash((tuple(given_runs), start, length, now)))}"
    low, high = start, min(start + length, now)
    allocated_s = lost_total = idle_total = 0
    for number, (began, lasted, open_, gpus, lost_s, idle_s) in enumerate(given_runs):
        one = run(number + 1, began, 0 if open_ else began + lasted, gpus=gpus)
        await put(store, one, cluster=name)
        lost_s = 0 if open_ else min(lost_s, lasted)
        await store.runs.record_loss(name, one.job, one.start, lost_s)
        idle_s = idle_s if open_ else min(idle_s, lasted)
        await store.runs.add_measurements(
            name, [(one.job, one.start + idle_s, idle_s, idle_s, 0)] if idle_s else [], T0
        )
        end = max(now, began) if open_ else began + lasted
        allocated_s += gpus * max(0, min(end, high) - max(began, low))
        parts = goodput.part_within(began, end, lost_s, idle_s, low, high)
        idle_total += gpus * parts[2]
        assert gpus * parts[1] == (gpus * max(0, min(end, high) - max(end - lost_s, low)) if lost_s else 0)
        lost_total += gpus * max(0, min(end, high) - max(end - lost_s, low)) if lost_s else 0
    span = ReportSpan(T0 + start, T0 + start + length, T0 + now)
    found = await store.usage.totals(name, span, [])
    assert sum(one.gpu_s for one in found) == allocated_s
    assert sum(one.lost_gpu_s for one in found) == lost_total
    assert sum(one.idle_gpu_s for one in found) == idle_total
    cells = [cell.use for cell in await store.usage.unit_seconds(name, span)]
    assert sum(cell.unit_s for cell in cells) == allocated_s
    assert all(0 <= cell.lost_unit_s + cell.idle_unit_s <= cell.unit_s for cell in cells)
    times = Times(allocated_s, lost_total, idle_total, sum(one.waited_gpu_s for one in found))
    assert sum((cell.times for cell in await store.usage.unit_seconds(name, span, timed=True)), Times()) == times
    for cut in (start + length // 3, start + length // 2):  # wherever the stretch is cut
        parts_of = [replace(span, end=T0 + cut), replace(span, start=T0 + cut)]
        cells_of = [cell for part in parts_of for cell in await store.usage.unit_seconds(name, part, timed=True)]
        assert sum((one.times for one in cells_of), Times()) == times
        for field in ("unit_s", "lost_unit_s", "idle_unit_s"):
            assert sum(getattr(cell.use, field) for cell in cells_of) == sum(getattr(cell, field) for cell in cells)


async def test_allocations_on_finds_runs_of_a_broken_node(store: Store) -> None:
    await put(store, run(1, 0, 100, nodes=("lab-1-1", "lab-1-2"), gpus=8), run(2, 50, 0, nodes=("lab-1-2",)))
    parts = [("lab-1-2", T0 + 90, T0 + 200), ("lab-1-1", T0 - 50, T0 + 10), ("lab-1-1", T0 + 99, T0 + 100)]
    found = await store.capacity.allocations_on("lab", parts, T0 + 150)
    assert sorted((one.node, one.units, one.per_node, one.start - T0, one.end - T0) for one in found) == [
        ("lab-1-1", 8, 16, 0, 10), ("lab-1-1", 8, 16, 99, 100), ("lab-1-2", 4, 8, 90, 150), ("lab-1-2", 8, 16, 90, 100),
    ]  # fmt: skip
    assert await store.capacity.allocations_on("lab", [], T0 + 150) == []


async def test_stores_machine_lifetimes_node_spans_and_invoices(store: Store) -> None:
    await store.machine_lifetimes.record("lab", [("lab-1-1", "main"), ("lab-1-2", "main")], [], [], T0)
    await store.machine_lifetimes.record(
        "lab", [], [MachineLifetime("lab-1-2", "main", T0, T0 + 50, T0 + 50)], ["lab-1-1"], T0 + 60
    )
    found = await store.machine_lifetimes.between("lab", T0, T0 + H)
    assert [(one.machine, one.ended and one.ended - T0, one.seen - T0) for one in found] == [
        ("lab-1-1", 0, 60), ("lab-1-2", 50, 0),
    ]  # fmt: skip
    await store.node_spans.save("lab", [NodeSpan("lab-1-1", SpanKind.DOWN, T0, 0, "dead")])
    await store.node_spans.save("lab", [NodeSpan("lab-1-1", SpanKind.DOWN, T0, T0 + 9, "dead")])
    assert [one.ended - T0 for one in await store.node_spans.between("lab", T0, T0 + H)] == [9]
    await store.machine_lifetimes.end_all("lab", T0 + 70)
    assert await store.machine_lifetimes.running("lab") == []
    assert await store.machine_lifetimes.clusters() == ["lab"]
    closed = await store.invoices.close("lab", "2026-10", {"a": 1}, "ann")
    assert (closed.period, closed.document) == ("2026-10", {"a": 1})
    with pytest.raises(Conflict, match="closed already"):
        await store.invoices.close("lab", "2026-10", {"a": 2}, "bob")
    assert [row.document for row in await store.invoices.of_cluster("lab")] == [{"a": 1}]


async def test_stores_budget_level_per_period(store: Store) -> None:
    assert await store.budgets.get("lab", "vision", T0) == ("", False)
    await store.budgets.record("lab", "vision", T0, "over", capped=True)
    assert await store.budgets.get("lab", "vision", T0) == ("over", True)
    assert await store.budgets.capped_teams("lab") == {"vision"}
    await store.budgets.record("lab", "vision", T0 + H, "ok", capped=False)
    assert await store.budgets.capped_teams("lab") == frozenset()


@pytest.fixture
def told(store: Store) -> Iterator[list[str]]:
    """What the database is told to change: a statement for many rows once."""
    found: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith(("SELECT", "PRAGMA")):
            found.append(statement)

    event.listen(store.database.engine.sync_engine, "before_cursor_execute", note)
    yield found
    event.remove(store.database.engine.sync_engine, "before_cursor_execute", note)


async def test_saves_one_hour_of_many_jobs_in_few_statements(store: Store, told: list[str]) -> None:
    """Nobody else can write meanwhile: a question for each job and minute would take half a minute."""
    await put(store, *(run(job, 0, 0) for job in range(1, 41)))
    minutes = [(job, T0 + 60 * at, 60, 60, 6000) for job in range(1, 41) for at in range(1, 61)]
    told.clear()
    await store.runs.add_measurements("lab", minutes, T0 + H, {(job, T0, "main"): (100, 7) for job in range(1, 41)})
    assert len(told) < 10
    for job in (1, 40):
        [found] = await store.usage.runs_of_job("lab", job)
        assert (found.measured_s, found.idle_s, found.energy_j, found.cpu_measured_s) == (H, H, 60 * 6000 + 100, 7)


async def test_ends_many_forgotten_runs_in_few_statements(store: Store, told: list[str]) -> None:
    """Each by the nodes it is known to hold: without their names the database reads all that ever ran."""
    both = ("lab-1-1", "lab-1-3")
    await put(store, *(run(job, 0, 0, nodes=both) for job in range(1, 41)), run(41, 50, 0), run(1, 90, 0))
    told.clear()
    await store.runs.end("lab", [(job, T0) for job in range(1, 41)], T0 + 60)
    assert len(told) < 10
    assert sorted(await store.runs.still_running("lab")) == [(1, T0 + 90), (41, T0 + 50)]
    on = await store.capacity.allocations_on("lab", [(node, T0, T0 + 100) for node in both], T0 + 100)
    assert sorted(one.end - T0 for one in on) == [60] * 80 + [100] * 2


async def test_batched_measurements_equal_single_ones(store: Store) -> None:
    """Runs over two groups, that begin and end within minutes; what is idle, and what is drawn, is whole of each minute."""
    [main] = LAB.groups
    halves = [replace(main, name=name, slots=main.slots[i : i + 2]) for i, name in ((0, "a"), (2, "b"))]
    lab, dice, seen = replace(LAB, groups=tuple(halves)), random.Random(7), []
    runs, minutes = [], []
    for job in range(1, 30):
        start = dice.randrange(-100, 100)
        for _ in range(dice.randrange(4)):
            end = start + dice.randrange(1, 150)
            runs.append(run(job, start, end, nodes=("lab-1-1", "lab-1-3")[: dice.randrange(1, 3)]))
            start = end + dice.randrange(40)
        runs.append(run(job, start, 0, nodes=("lab-1-3",)))
        minutes += [
            (job, T0 + at, 60, dice.randrange(61), dice.choice([None, 0, dice.randrange(10**6)]))
            for at in range(0, 360, 60)
        ]
    for cluster, parts in (("whole", [minutes]), ("alone", [[minute] for minute in minutes])):
        await put(store, *runs, cluster=cluster, of=lab)
        for part in parts:
            await store.runs.add_measurements(cluster, part, part[-1][1])
        rows = [one for job in range(1, 30) for one in await store.usage.runs_of_job(cluster, job)]
        seen.append([(row.job, row.start, row.group, row.measured_s, row.idle_s, row.energy_j) for row in rows])
    assert seen[0] == seen[1]
    by_hand: dict[tuple[int, int], list[int]] = {}
    for job, at, seconds, idle_s, joules in minutes:
        for one in runs:
            lasted = min(one.end or at, at) - max(one.start, at - seconds)
            if one.job == job and lasted > 0:
                sums = by_hand.setdefault((job, one.start), [0, 0, 0])
                sums[0] += lasted if joules is not None else 0
                sums[1] += idle_s * lasted // seconds
                sums[2] += round((joules or 0) * lasted / seconds)
    told: dict[tuple[int, int], list[int]] = {}
    for job, begun, _, measured_s, idle, drawn in seen[0]:
        told.setdefault((job, begun), [measured_s, idle, 0])[2] += drawn
    assert {key: sums for key, sums in told.items() if any(sums)} == {key: v for key, v in by_hand.items() if any(v)}
