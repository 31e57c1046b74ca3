"""A month's report of 1,000,000 job records: how long it takes, and what memory it takes beside one of 10,000.

    python bench/ledger.py [--runs 1000000] [--most 2.0]

Prints one JSON object. Ends with 1 where a report takes longer than --most seconds, or a hundred times the records take
twice the memory."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headway.domain.ledger import Held, Run
from headway.ledger.capacity import Ends, held_between
from headway.store import Store, open_store
from headway.store.usage import Span

MONTH = (1_790_812_800, 1_793_491_200)  # October 2026
NODES = 128
TEAMS = ("vision", "speech", "robotics", "search", "small")
CHUNK = 20_000


def made(count: int) -> Any:
    """Runs of a month, in order; a few began before it and some run on after it."""
    dice = random.Random(1)
    span = MONTH[1] - MONTH[0]
    for number in range(count):
        start = MONTH[0] - 86_400 + (span + 86_400) * number // count
        seconds = int(dice.expovariate(1 / 5000)) + 1
        gpus = dice.choice((1, 1, 1, 2, 4, 8, 16))
        nodes = tuple(f"lab-{(number + i) % NODES // 16 + 1}-{(number + i) % 16 + 1}" for i in range(-(-gpus // 8)))
        team = dice.choice(TEAMS)
        run = Run(
            number + 1, start, start + seconds, start - 60, start - int(dice.expovariate(1 / 600)), team,
            f"{team}{dice.randrange(20)}", dice.choice(("train", "debug")), team, "COMPLETED", nodes, gpus, gpus * 8, 1000,
            86_400, seconds, 500, 0, "h100",
        )  # fmt: skip
        yield run, [Held("main", nodes, "h100", gpus, gpus * 8, gpus, 8)], 0


async def fill(folder: Path, count: int) -> float:
    began = time.monotonic()
    store = await open_store(folder)
    part: list[tuple[Run, list[Held], int]] = []
    for one in made(count):
        part.append(one)
        if len(part) == CHUNK:
            await store.put_runs("lab", part)
            part = []
    await store.put_runs("lab", part, collected_to=MONTH[1])
    await store.close()
    return time.monotonic() - began


async def report(store: Store) -> dict[str, float]:
    span = Span(*MONTH, MONTH[1] + 1)
    took: dict[str, float] = {}

    async def timed(name: str, work: Any) -> Any:
        began = time.monotonic()
        found = await work
        took[name] = round(time.monotonic() - began, 3)
        return found

    await timed("usage_by_team_s", store.usage("lab", span, ["team"]))
    await timed("usage_by_all_s", store.usage("lab", span, ["team", "user", "partition", "gpu_type"]))
    await timed("chargeback_s", store.held("lab", span))
    await timed("waits_s", store.waits("lab", span))
    marks = range(MONTH[0], MONTH[1] + 1, 3600)
    began = await timed("hours_begun_s", store.moments("lab", span, marks, False))
    ended = await timed("hours_ended_s", store.moments("lab", span, marks, True))
    for kind in began:
        ends = [{place: Ends(*sums) for place, sums in found[kind].items()} for found in (began, ended)]
        held_between(marks, *ends)
    return took


def in_a_process(folder: Path) -> tuple[dict[str, float], float]:
    """(seconds of each report, MiB of a fresh process that made them)"""

    async def work() -> dict[str, float]:
        store = await open_store(folder)
        try:
            return await report(store)
        finally:
            await store.close()

    found = asyncio.run(work())
    # Of this program alone: getrusage's figure is no less than what its parent held when it was started.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return found, int(peak.split()[1]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--most", type=float, default=2.0)
    asked = parser.parse_args()
    out: dict[str, Any] = {"runs": asked.runs}
    fresh = multiprocessing.get_context("spawn")
    memory = []
    for count in (max(1, asked.runs // 100), asked.runs):
        with tempfile.TemporaryDirectory() as folder:
            out["filled_s"] = round(asyncio.run(fill(Path(folder), count)), 1)
            out["database_mib"] = round((Path(folder) / "headway.db").stat().st_size / 2**20)
            with fresh.Pool(1) as pool:
                took, mib = pool.apply(in_a_process, (Path(folder),))
            memory.append(round(mib, 1))
            out.update(took)
    out["memory_mib"], out["memory_mib_of_a_hundredth"] = memory[1], memory[0]
    slow = [
        name for name, seconds in out.items() if name.endswith("_s") and name != "filled_s" and seconds > asked.most
    ]
    out["ok"] = not slow and memory[1] < 2 * memory[0]
    print(json.dumps(out, indent=1))
    return 0 if out["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
