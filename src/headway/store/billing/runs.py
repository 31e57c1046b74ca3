"""The runs of jobs as reported by accounting, each stored exactly once, and what Headway measured for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Insert,
    Table,
    Update,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.billing.ledger import CpuAllocation, GroupAllocation, JobRun
from headway.domain.slurm.hostlist import compress, expand
from headway.store.billing.daily_rollups import DailyRollupStore, Part
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.db import billing_schema as t
from headway.store.db.transactions import Database, StorePart, insert_into

Kind = tuple[str, str, str, str, str, int]  # the values of KIND
# Job, time, seconds, idle seconds, joules (None: power was not reported).
Sample = tuple[int, int, int, int, int | None]
KIND = ("team", "user", "partition", "gpu_type", "group", "per_node")
# Written like the condition of the index of open runs, so that the index is used.
OPEN = t.runs.c.end == literal_column("0")
_MEASURED = frozenset(
    {"measured_s", "idle_s", "energy_j", "cpu_measured_s", "saved_at"}
)  # measured by Headway, not reported by accounting
_KEY = ("cluster", "job", "start", "group")
_BATCH = 500


class RunStore(StorePart):
    """Stores runs."""

    def __init__(self, database: Database, rollups: DailyRollupStore, progress: LedgerProgress) -> None:
        super().__init__(database)
        self._rollups = rollups
        self._progress = progress

    async def save(
        self, cluster: str, runs: Iterable[tuple[JobRun, Sequence[GroupAllocation], int]], **mark: int
    ) -> None:
        """Stores runs and the new progress mark, in one transaction.

        Each entry of `runs` is (run, what it holds according to the present cluster file, seconds lost at its end as
        far as its state tells). A run that is known (same job and start) is updated with what accounting reports now.
        Headway's own measurements stay, and so do its groups while its nodes are the same: a changed cluster file does
        not change what was allocated to a run. If Slurm moves the start of a run, as it does when the nodes it waited for have
        booted, it stays the same run."""
        # Two halves of an accounting answer may both contain a run.
        latest = {(one[0].job, one[0].start): one for one in runs}.values()
        rows, nodes, kinds, longest, others = [], [], [], 0, []
        async with self._database.write() as db:
            were = await self._known_parts(db, cluster, {run.job for run, _, _ in latest})
            for run, allocations, lost_s in latest:
                longest = max(longest, (run.end or run.start) - run.start)
                before = were.get((run.job, run.start), [])
                parts = as_known(allocations, before)
                if before and parts is not before:
                    others.append((run, run.start, {part.group for part in parts}))
                for number, part in enumerate(parts):
                    rows.append(_row(cluster, run, part, lost_s, first=number == 0))
                    kinds.append((run.team, run.user, run.partition, part.gpu_type, part.group, part.per_node))
                    nodes += [_node(cluster, run, part, node) for node in part.nodes]
            ids = await self._kind_ids(db, cluster, kinds)
            for row, kind in zip(rows, kinds, strict=True):
                row["kind"] = ids[kind]
            others += [
                (run, start, set[str]())
                for run, start in await self._moved_starts(db, cluster, [run for run, _, _ in latest], were)
            ]
            async with self._rollups.invalidating(db, cluster, {run.job for run, _, _ in latest}):
                drawn = [
                    (run, await self._delete_except(db, cluster, run.job, start, groups))
                    for run, start, groups in others
                ]
                for table, found, key in (
                    (t.runs, rows, _KEY),
                    (t.run_nodes, nodes, ("cluster", "node", "start", "job")),
                ):
                    for at in range(0, len(found), _BATCH):
                        await db.execute(upsert(db, table, key), found[at : at + _BATCH])
                for run, measured in drawn:
                    await self._put_in(db, cluster, run, measured)
            await self._progress.update_in(
                db, cluster, {**mark, "longest_s": await self._progress.longest_s(db, cluster, longest)}
            )

    async def _known_parts(
        self, db: AsyncConnection, cluster: str, jobs: Iterable[int]
    ) -> dict[tuple[int, int], list[GroupAllocation]]:
        """Returns the stored allocations of each known run of these jobs, the row with `first` = 1 first."""
        k, r, numbers = t.run_kinds, t.runs, sorted(jobs)
        columns = (r.c.job, r.c.start, r.c.group, r.c.nodes, k.c.gpu_type, r.c.gpus, r.c.cpus, r.c.units, k.c.per_node)
        query = select(*columns).select_from(r.join(k, r.c.kind == k.c.id)).order_by(r.c.first.desc(), r.c.group)
        found: dict[tuple[int, int], list[GroupAllocation]] = {}
        for at in range(0, len(numbers), _BATCH):
            mine = (r.c.cluster == cluster, self._database.is_one_of(r.c.job, numbers[at : at + _BATCH]))
            for job, start, group, nodes, *rest in await db.execute(query.where(*mine)):
                found.setdefault((job, start), []).append(GroupAllocation(group, tuple(expand(nodes)), *rest))
        return found

    async def _moved_starts(
        self,
        db: AsyncConnection,
        cluster: str,
        runs: Iterable[JobRun],
        were: Mapping[tuple[int, int], Sequence[GroupAllocation]],
    ) -> list[tuple[JobRun, int]]:
        """Returns (run, earlier start) for the runs that are stored with an earlier start on the same nodes and have
        not ended, or were ended because accounting no longer had them.

        Accounting has one record per job and submit time, and a requeue changes the submit time. After a restore that
        record may belong to another run, so the nodes must be the same; if not, the earlier run did hold its nodes."""
        r, of = t.runs, {(run.job, run.submit): run for run in runs}
        jobs, found, unended = sorted({job for job, _ in of}), [], or_(OPEN, r.c.state == "UNKNOWN")
        known = select(r.c.job, r.c.submit, r.c.start).where(r.c.cluster == cluster, unended, r.c.first == 1)
        for at in range(0, len(jobs), _BATCH):
            for job, submit, start in await db.execute(
                known.where(self._database.is_one_of(r.c.job, jobs[at : at + _BATCH]))
            ):
                run = of.get((job, submit))
                on = {node for part in were.get((job, start), ()) for node in part.nodes}
                if run is not None and start < run.start and on == set(run.nodes):
                    found.append((run, int(start)))
        return found

    async def _delete_except(
        self, db: AsyncConnection, cluster: str, job: int, start: int, groups: Collection[str]
    ) -> dict[str, Any]:
        """Deletes the rows of a run except those of these groups; returns the run's measurements."""
        r, n = t.runs, t.run_nodes
        mine = (r.c.cluster == cluster, r.c.job == job, r.c.start == start)
        gone = (*mine, r.c.group.not_in(groups))
        of_all = select(func.max(r.c.measured_s), func.max(r.c.idle_s), func.max(r.c.saved_at), func.max(r.c.lost_s))
        measured_s, idle_s, saved_at, lost_s = (await db.execute(of_all.where(*mine))).one()
        of_gone = select(func.sum(r.c.energy_j), func.sum(r.c.cpu_measured_s)).where(*gone)
        energy_j, cpu_s = (await db.execute(of_gone)).one()
        await db.execute(delete(r).where(*gone))
        await db.execute(delete(n).where(n.c.cluster == cluster, n.c.job == job, n.c.start == start))
        marks = {} if saved_at is None else {"saved_at": saved_at, "lost_s": lost_s}
        return {
            "measured_s": measured_s,
            "idle_s": idle_s,
            **marks,
            "energy_j": int(energy_j or 0),
            "cpu_s": int(cpu_s or 0),
        }

    async def _put_in(self, db: AsyncConnection, cluster: str, run: JobRun, measured: Mapping[str, Any]) -> None:
        """Adds the measurements returned by `_delete_except` to the present rows of the run."""
        r = t.runs
        mine = (r.c.cluster == cluster, r.c.job == run.job, r.c.start == run.start)
        of_all = {name: value for name, value in measured.items() if name not in ("energy_j", "cpu_s")}
        await db.execute(update(r).where(*mine).values(**of_all))
        drawn = {
            "energy_j": r.c.energy_j + measured["energy_j"],
            "cpu_measured_s": r.c.cpu_measured_s + measured["cpu_s"],
        }
        await db.execute(update(r).where(*mine, r.c.first == 1).values(**drawn))

    async def _kind_ids(self, db: AsyncConnection, cluster: str, kinds: Iterable[Kind]) -> dict[Kind, int]:
        """Returns the id of each kind; missing kinds are created."""
        k = t.run_kinds
        names = [k.c[name] for name in KIND]

        async def known() -> dict[Kind, int]:
            rows = await db.execute(select(k.c.id, *names).where(k.c.cluster == cluster))
            return {(row[1], row[2], row[3], row[4], row[5], row[6]): int(row[0]) for row in rows}

        found = await known()
        new = [kind for kind in dict.fromkeys(kinds) if kind not in found]
        if not new:
            return found
        rows = [{"cluster": cluster, **dict(zip(KIND, kind, strict=True))} for kind in new]
        await db.execute(insert_into(db, k).on_conflict_do_nothing(), rows)
        return await known()

    async def collect_again(self, cluster: str) -> None:
        """Makes the next billing round read accounting again from the beginning. Measurements and billing data stay. Rows stay
        as well: accounting's data overwrites them, and rows it no longer has are kept."""
        await self._progress.update(cluster, collected_to=0, swept_at=0)

    async def add_measurements(
        self,
        cluster: str,
        found: Iterable[Sample],
        measured_to: int,
        hosts: Mapping[Part, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        """Adds measurements to runs, together with the progress mark so that nothing is added twice.

        A sample covers the seconds before its time, and every run of the job gets its part of it. GPU energy is
        divided among the groups of a run by their number of GPUs. `hosts`: (joules, CPU-seconds) of runs on nodes
        whose power counters were read. All is written in one transaction that blocks other writers, with one update
        per run, so callers pass large amounts in several calls."""
        r, by_job = t.runs, dict[int, list[Sample]]()
        for sample in found:
            by_job.setdefault(sample[0], []).append(sample)
        of_run = (r.c.cluster == cluster, r.c.job == bindparam("its_job"), r.c.start == bindparam("its_start"))
        of_part = (*of_run, r.c.group == bindparam("its_group"))
        gpus = {
            "idle_s": r.c.idle_s + _added("idle"),
            "measured_s": r.c.measured_s + _added("measured"),
            "energy_j": r.c.energy_j + _added("joules"),
        }
        nodes = {
            "energy_j": r.c.energy_j + _added("joules"),
            "cpu_measured_s": r.c.cpu_measured_s + _added("cpu"),
        }
        parts = [
            {"its_job": job, "its_start": start, "its_group": group, "joules": joules, "cpu": cpu_s}
            for (job, start, group), (joules, cpu_s) in hosts.items()
        ]
        async with self._database.write() as db:
            sums = await self._share_samples(db, cluster, by_job)
            async with self._rollups.invalidating(db, cluster, [*by_job, *(job for job, _, _ in hosts)], ended=True):
                await in_batches(db, update(r).where(*of_part).values(**gpus), sums)
                await in_batches(db, update(r).where(*of_part).values(**nodes), parts)
            await self._progress.update_in(db, cluster, {"measured_to": measured_to})

    async def _share_samples(
        self, db: AsyncConnection, cluster: str, by_job: Mapping[int, Sequence[Sample]]
    ) -> list[dict[str, int | str]]:
        """Returns the sums of the samples for each run of these jobs, by group; runs without any are omitted."""
        r, jobs, sums = t.runs, sorted(by_job), list[dict[str, int | str]]()
        runs: dict[tuple[int, int, int], dict[str, int]] = {}
        since = min((at - seconds for samples in by_job.values() for _, at, seconds, _, _ in samples), default=0)
        query = select(r.c.job, r.c.start, r.c.end, r.c.group, r.c.gpus).where(r.c.cluster == cluster)
        for i in range(0, len(jobs), _BATCH):
            theirs = (self._database.is_one_of(r.c.job, jobs[i : i + _BATCH]), or_(OPEN, r.c.end > since))
            for job, start, end, group, gpus in await db.execute(query.where(*theirs).order_by(r.c.first.desc())):
                runs.setdefault((job, start, end), {})[group] = gpus
        for (job, start, end), parts in runs.items():
            measured = idle = 0
            drawn = dict.fromkeys(parts, 0)
            for _, at, seconds, idle_s, joules in by_job[job]:
                lasted = min(end or at, at) - max(start, at - seconds)
                if lasted <= 0:
                    continue
                idle += idle_s * lasted // seconds
                if joules is not None:
                    measured += lasted
                    for group, share in _shared(round(joules * lasted / seconds), parts).items():
                        drawn[group] += share
            if measured or idle or any(drawn.values()):
                run = {"its_job": job, "its_start": start, "idle": idle, "measured": measured}
                sums += [{**run, "its_group": group, "joules": share} for group, share in drawn.items()]
        return sums

    async def record_loss(self, cluster: str, job: int, start: int, lost_s: int, saved_at: float | None = None) -> None:
        """Records the seconds lost at the end of a run, and when its last checkpoint was written (unix seconds)."""
        r = t.runs
        values: dict[str, Any] = {"lost_s": lost_s} | ({} if saved_at is None else {"saved_at": saved_at})
        async with self._database.write() as db, self._rollups.invalidating(db, cluster, [job], ended=True):
            await db.execute(
                update(r).where(r.c.cluster == cluster, r.c.job == job, r.c.start == start).values(**values)
            )

    async def end(self, cluster: str, runs: Iterable[tuple[int, int]], at: int) -> None:
        """Ends the runs (job, start) that accounting no longer knows; `at` is when they were last seen running.

        Each transaction ends a limited number of runs, because it blocks other writers. If the call is interrupted,
        the remaining runs stay open and are checked again later."""
        r, n, ended = t.runs, t.run_nodes, sorted(runs)
        of_run = (r.c.cluster == cluster, r.c.job == bindparam("its_job"), r.c.start == bindparam("its_start"))
        of_node = (n.c.cluster == cluster, n.c.job == bindparam("its_job"), n.c.start == bindparam("its_start"))
        for i in range(0, len(ended), _BATCH):
            some = ended[i : i + _BATCH]
            ends = [{"its_job": job, "its_start": start, "its_end": max(at, start)} for job, start in some]
            async with self._database.write() as db:
                parts = await self._known_parts(db, cluster, {job for job, _ in some})
                # With the node's name the database can use the primary key; without it, it would read all runs ever
                # stored.
                on = [
                    {**row, "its_node": node}
                    for row in ends
                    for part in parts.get((row["its_job"], row["its_start"]), ())
                    for node in part.nodes
                ]
                async with self._rollups.invalidating(db, cluster, [job for job, _ in some]):
                    await in_batches(db, update(r).where(*of_run).values(end=_added("its_end"), state="UNKNOWN"), ends)
                there = (*of_node, n.c.node == bindparam("its_node"))
                await in_batches(db, update(n).where(*there).values(end=_added("its_end")), on)
                longest = max(row["its_end"] - row["its_start"] for row in ends)
                if longest:
                    await self._progress.update_in(
                        db, cluster, {"longest_s": await self._progress.longest_s(db, cluster, longest)}
                    )

    async def allocations(self, cluster: str, since: int, until: int) -> list[CpuAllocation]:
        """Returns what was allocated to runs on nodes at any time from `since` until `until`, which must be recent."""
        k, r = t.run_kinds, t.runs
        columns = (r.c.job, r.c.start, r.c.end, r.c.group, r.c.nodes, r.c.cpus)
        running = select(*columns).where(r.c.cluster == cluster, OPEN, r.c.start < until)
        ended = (
            select(*columns)
            .select_from(k.join(r, r.c.kind == k.c.id))
            .where(k.c.cluster == cluster, r.c.end > since, r.c.start < until)
        )
        async with self._database.read() as db:
            return [
                CpuAllocation(row.job, row.start, row.end, row.group, tuple(expand(row.nodes)), row.cpus)
                for query in (running, ended)
                for row in await db.execute(query)
            ]

    async def still_running(self, cluster: str) -> list[tuple[int, int]]:
        """Returns (job, start) of the runs that have not ended."""
        r = t.runs
        query = select(r.c.job, r.c.start).where(r.c.cluster == cluster, OPEN, r.c.first == 1)
        async with self._database.read() as db:
            return [(int(job), int(start)) for job, start in await db.execute(query)]


async def in_batches(db: AsyncConnection, statement: Update, rows: Sequence[Mapping[str, Any]]) -> None:
    """Executes the statement for each of these rows, in batches."""
    for at in range(0, len(rows), _BATCH):
        await db.execute(statement, rows[at : at + _BATCH])


def _shared(joules: int, gpus: Mapping[str, float]) -> dict[str, int]:
    """Divides joules by the number of GPUs in each group, exactly. If no group has GPUs, the first group gets all."""
    shares = {group: Fraction(count).limit_denominator(1000) for group, count in gpus.items()}
    whole, before, found = sum(shares.values()), Fraction(0), dict[str, int]()
    for group, count in shares.items():
        found[group] = joules * (before + count) // whole - joules * before // whole if whole else joules * (not found)
        before += count
    return found


def _added(name: str) -> BindParameter[int]:
    """Returns a bind parameter for a number in a row passed to `in_batches`."""
    return bindparam(name, type_=BigInteger)


def as_known(now: Sequence[GroupAllocation], before: list[GroupAllocation]) -> Sequence[GroupAllocation]:
    """Returns `before` if it is for the same nodes and resources as `now`, because the groups at the start of the run
    count. Else returns `now`, also if a node that had no group has one now."""
    if not before or _nodes_and_all(before) != _nodes_and_all(now):
        return now
    nameless = {node for part in before if not part.group for node in part.nodes}
    return now if any(part.group and not nameless.isdisjoint(part.nodes) for part in now) else before


def _nodes_and_all(parts: Iterable[GroupAllocation]) -> tuple[list[str], float, int]:
    nodes = sorted(node for part in parts for node in part.nodes)
    return nodes, round(sum(part.gpus for part in parts), 6), sum(part.cpus for part in parts)


def _row(cluster: str, run: JobRun, part: GroupAllocation, lost_s: int, *, first: bool) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "job": run.job,
        "start": run.start,
        "group": part.group,
        "first": int(first),
        "end": run.end,
        "submit": run.submit,
        "eligible": min(run.eligible or run.submit, run.start),
        "qos": run.qos,
        "state": run.state,
        "nodes": compress(part.nodes),
        "node_count": len(part.nodes),
        "gpus": part.gpus,
        "cpus": part.cpus,
        "units": part.units,
        "memory_mib": run.memory_mib,
        "time_limit_s": run.time_limit_s,
        "used_cpu_s": run.used_cpu_s,
        "used_memory_mib": run.used_memory_mib,
        "array_job": run.array_job,
        "lost_s": lost_s,
    }


def _node(cluster: str, run: JobRun, part: GroupAllocation, node: str) -> dict[str, Any]:
    """Returns the row of one node. Accounting only reports totals, so a job's nodes count as holding equal amounts."""
    return {
        "cluster": cluster,
        "node": node,
        "start": run.start,
        "job": run.job,
        "end": run.end,
        "units": part.units,
        "per_node": part.per_node * len(part.nodes),
    }


def upsert(db: AsyncConnection, table: Table, key: Sequence[str]) -> Insert:
    """Returns an INSERT that updates the row with the same key, except for columns that Headway measures."""
    made = insert_into(db, table)
    fresh = {
        column.name: made.excluded[column.name]
        for column in table.columns
        if column.name not in key and column.name not in _MEASURED
    }
    # The checkpoint time reported by the training job is more accurate than the guess from the job's state.
    if table is t.runs:
        fresh["lost_s"] = case((table.c.saved_at.is_(None), made.excluded.lost_s), else_=table.c.lost_s)
    found: Insert = made.on_conflict_do_update(index_elements=list(key), set_=fresh)
    return found
