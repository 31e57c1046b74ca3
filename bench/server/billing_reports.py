"""Measures a month's reports over 1,000,000 job records: how long each takes, and the memory compared with 10,000
records.

    python bench server/billing_reports [--runs 1000000] [--most 2.0] [--keep FOLDER]

A tenth of the runs lost work, two thirds were idle for a while, nodes were drained, and the price changed in mid-month.
Prints one JSON object. Ends with 1 if a report takes longer than --most seconds, or if a hundred times the records take
twice the memory. --keep: fills the database in this folder once, and uses it again in later calls."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headway.billing.goodput import lost_s
from headway.billing.periods import month_period, time_zone
from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.billing.ledger import DAY_S, CheckpointStats, GroupAllocation, JobRun, NodePrice, NodeSpan, SpanKind
from headway.domain.cluster import Cluster
from headway.domain.incident import FaultAction
from headway.services.billing.invoice_views import load_chargeback
from headway.services.billing.ledger.daily_rollups import sum_days
from headway.services.billing.reports.capacity import load_capacity
from headway.services.billing.reports.energy import load_energy
from headway.services.billing.reports.goodput import load_goodput
from headway.services.billing.reports.report_scope import BilledCluster, ReportScope
from headway.services.billing.reports.usage import load_usage
from headway.store import Store, open_store
from headway.store.billing.run_sums import Only

MONTH = month_period("2026-10", time_zone("UTC"))
NODES = 512  # 1,000,000 runs hold four fifths of their GPUs
TEAMS = ("vision", "speech", "robotics", "search", "small")
CHUNK = 20_000


def cluster() -> Cluster:
    """Returns a cluster of NODES nodes and five teams."""
    people = {team: {"users": [f"{team}{i}" for i in range(20)]} for team in TEAMS}
    hosts = [f"10.0.{number // 256}.{number % 256}" for number in range(NODES + 1)]
    spec = {"name": "lab", "provider": "ssh", "plan": "h100-8", "nodes": NODES, "hosts": hosts, "teams": people}
    return resolve_cluster_file({**spec, "fabric": {"leaf_size": 16}}, load_catalogue({}), owner="ann")[0]


def made(count: int, names: tuple[str, ...]) -> Any:
    """Yields the runs of a month in order; a few began before it and some end after it."""
    dice = random.Random(1)
    for number in range(count):
        start = MONTH.start - 86_400 + (MONTH.seconds + 86_400) * number // count
        seconds = int(dice.expovariate(1 / 1800)) + 1
        gpus = dice.choice((1, 1, 1, 2, 4, 8, 16))
        nodes = tuple(names[(number + i) % NODES] for i in range(-(-gpus // 8)))
        team = dice.choice(TEAMS)
        state = dice.choices(("COMPLETED", "PREEMPTED", "REQUEUED", "NODE_FAIL"), (90, 5, 4, 1))[0]
        run = JobRun(
            number + 1, start, start + seconds, start - 60, start - int(dice.expovariate(1 / 600)), team,
            f"{team}{dice.randrange(20)}", dice.choice(("train", "debug")), team, state, nodes, gpus, gpus * 8, 1000,
            86_400, seconds, 500, 0, "h100",
        )  # fmt: skip
        lost = lost_s(state, run.start, run.end, float(run.end - min(seconds, dice.randrange(1, 3600))))
        yield run, [GroupAllocation("main", nodes, "h100", gpus, gpus * 8, gpus, 8)], lost


async def fill(folder: Path, count: int) -> float:
    """Fills the database in `folder` with `count` runs, and returns the seconds."""
    began = time.monotonic()
    store = await open_store(folder, clock=lambda: float(MONTH.end))
    names = tuple(cluster().group_of)
    part: list[tuple[JobRun, list[GroupAllocation], int]] = []
    for one in made(count, names):
        part.append(one)
        if len(part) == CHUNK:
            await store.runs.save("lab", part)
            part = []
    await store.runs.save("lab", part, collected_to=MONTH.end)
    await others(store, count, names)
    await store.close()
    # sets directly what the server would measure over minutes
    with closing(sqlite3.connect(folder / "headway.db")) as db:
        db.execute(
            'UPDATE runs SET idle_s = min((job * 7919) % 3000 * (job % 3 > 0), "end" - start - lost_s), '
            'measured_s = "end" - start'
        )
        db.execute("UPDATE runs SET energy_j = gpus * 500 * measured_s")
        db.commit()
    return time.monotonic() - began


async def summed(folder: Path) -> float:
    """Returns the seconds to sum a month's days. A running server sums a few each minute, and again those whose runs
    changed."""
    store, began = await open_store(folder), time.monotonic()
    while await sum_days(store, "lab", MONTH.end + DAY_S):
        pass
    await store.close()
    return time.monotonic() - began


async def others(store: Store, count: int, names: tuple[str, ...]) -> None:
    """Adds machines, prices, drains, incidents and checkpoints."""
    half = (MONTH.start + MONTH.end) // 2
    await store.machine_lifetimes.record("lab", [(name, "main") for name in names], [], [], MONTH.start - 86_400)
    prices = [NodePrice("main", float(at), Decimal(usd)) for at, usd in ((MONTH.start - 86_400, "20"), (half, "18.5"))]
    for price in prices:
        await store.prices.record("lab", [price])
    drains = [(names[i % NODES], MONTH.start + i * 7200) for i in range(300)]
    await store.node_spans.save(
        "lab", [NodeSpan(name, SpanKind.DRAINED, at, at + 5400, "tests") for name, at in drains]
    )
    for i in range(300):
        opened = await store.incidents.open("lab", names[i % NODES], f"XID {i % 9}", FaultAction.RESET, half + i, {})
        await store.incidents.record_requeued_jobs(opened.number, [count // 2 + i], half + i)
    await store.checkpoints.record(
        "lab", {job: CheckpointStats(20, 200.0 + job % 9, 4000.0) for job in range(1, count, 100)}, MONTH.end
    )


async def report(store: Store) -> dict[str, float]:
    """Returns the seconds of each report as the API makes it, before it is encoded as JSON."""
    lab = cluster()
    live = SimpleNamespace(snapshot=lambda _: SimpleNamespace(nodes=()))
    state: Any = SimpleNamespace(store=store, live=live, clock=lambda: float(MONTH.end + 1))
    look = ReportScope(BilledCluster("lab", lab, MONTH.end + 1), MONTH, None)
    place, took = look.billed, dict[str, float]()

    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        "usage_by_team": lambda: load_usage(state, place, MONTH, ["team"], Only()),
        "usage_by_all": lambda: load_usage(state, place, MONTH, ["team", "user", "partition", "gpu_type"], Only()),
        "chargeback": lambda: load_chargeback(state, look),
        "goodput": lambda: load_goodput(state, look),
        "energy": lambda: load_energy(state, look),
        "capacity": lambda: load_capacity(state, look),
    }
    for name, make in asked.items():
        began = time.monotonic()
        await make()
        took[f"{name}_s"] = round(time.monotonic() - began, 3)
    return took


def in_a_process(folder: Path) -> tuple[dict[str, float], float]:
    """Returns (seconds of each report, peak MiB of a fresh process that made them)."""

    async def work() -> dict[str, float]:
        store = await open_store(folder)
        try:
            return await report(store)
        finally:
            await store.close()

    found = asyncio.run(work())
    # VmHWM is of this program alone; getrusage's figure includes the parent's memory at the fork.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return found, int(peak.split()[1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--most", type=float, default=2.0)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    out: dict[str, Any] = {"runs": arguments.runs}
    fresh = multiprocessing.get_context("spawn")
    memory, took = [], dict[str, float]()
    for count in (max(1, arguments.runs // 100), arguments.runs):
        with tempfile.TemporaryDirectory() as passing:
            folder = arguments.keep / str(count) if arguments.keep else Path(passing)
            if not (folder / "headway.db").exists():
                folder.mkdir(parents=True, exist_ok=True)
                out["filled_s"] = round(asyncio.run(fill(folder, count)), 1)
                out["summed_s"] = round(asyncio.run(summed(folder)), 1)
            out["database_mib"] = round((folder / "headway.db").stat().st_size / 2**20)
            with fresh.Pool(1) as pool:
                took, mib = pool.apply(in_a_process, (folder,))
            memory.append(round(mib, 1))
    out |= took
    out["memory_mib"], out["memory_mib_of_a_hundredth"] = memory[1], memory[0]
    out["ok"] = max(took.values()) <= arguments.most and memory[1] < 2 * memory[0]
    print(json.dumps(out, indent=1))
    return 0 if out["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
