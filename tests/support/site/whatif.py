"""What-ifs of the furnished site: four more nodes for `demo`, and a replay of the present cluster."""

from __future__ import annotations

import time

from headway.schemas.whatif import ReplayFiguresOut, WaitsOut, WhatIfOut
from headway.store import Store

_DAY_S = 86_400
_WAITS = {  # (team, size) -> seconds of median and 90 % as it was, replayed, changed
    ("vision", "1 GPU"): ((300, 4100), (290, 4200), (6, 1800)),
    ("vision", "9-64 GPUs"): ((6300, 21000), (6200, 21400), (3500, 11600)),
    ("speech", "2-8 GPUs"): ((2200, 6700), (2250, 6600), (240, 2100)),
    ("all", "all"): ((2800, 11800), (2850, 11900), (600, 5700)),
}


def result(operation: str, at: float, *changes: str) -> WhatIfOut:
    """Returns a result with these changes; without, only the present cluster was replayed."""
    names = ("real", "present", "changed") if changes else ("real", "present")
    figures = {
        name: ReplayFiguresOut(
            waits=[
                WaitsOut(team=team, size=size, jobs=30, median_s=waits[place][0], p90_s=waits[place][1])
                for (team, size), waits in _WAITS.items()
            ],
            utilisation=(0.802, 0.805, 0.688)[place],
            fragmentation=(None, 0.142, 0.149)[place],
            last_end_s=(35_000, 34_600, 24_800)[place],
            usd=(2296, 2296, 4592)[place],
            usd_per_gpu_hour=(3.71, 3.71, 4.34)[place],
        )
        for place, name in enumerate(names)
    }
    return WhatIfOut(
        cluster="demo",
        operation=operation,
        at=at,
        seconds=21.0,
        changes=list(changes),
        first=at - _DAY_S,
        hours=23.9,
        jobs=121,
        left_out={"it ran for no time": 2},
        figures=figures,
        refused={"changed": {"Node count specification invalid": ["901"]}} if changes else {},
    )


async def put(store: Store) -> None:
    """Stores both results."""
    now = time.time()
    for found in (result("op-whatif-1", now - 7200), result("op-whatif-2", now - 600, "nodes +4", "no cap for vision")):
        await store.whatifs.record("demo", found.operation, found.at, found.model_dump())
