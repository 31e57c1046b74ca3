"""The fabric test of the furnished site: one node of `demo` is slow."""

from __future__ import annotations

import time
from itertools import combinations

from headway.schemas.nodes.fabric_tests import (
    FabricFindingOut,
    FabricMeasurementOut,
    FabricMismatchOut,
    FabricSkippedOut,
    FabricTestOut,
)
from headway.store import Store

LEAVES = {**{f"demo-1-{place}": "leaf1" for place in range(1, 5)}, "demo-2-1": "leaf2"}
SLOW = "demo-1-3"


def result() -> FabricTestOut:
    """Returns a result in which every pair with SLOW is slow."""
    pairs = list(combinations(LEAVES, 2))
    measurements = [
        FabricMeasurementOut(
            kind="leaf" if LEAVES[one] == LEAVES[other] else "leaves",
            nodes=[one, other],
            gb_s=41.2 if SLOW in (one, other) else 330.0 + 9 * place,
            expected_gb_s=380.0,
            slow=SLOW in (one, other),
        )
        for place, (one, other) in enumerate(pairs[:-1])
    ]
    together = [node for node in LEAVES if node != SLOW]
    measurements.append(FabricMeasurementOut(kind="all", nodes=together, gb_s=352.0, expected_gb_s=380.0))
    what = f"all-reduce with {SLOW} reaches 41.2 GB/s, 380 GB/s expected"
    how = [f"demo-1-1,{SLOW}: 41.2 GB/s, measured again", "without it, demo-1-[1-2]: 330 GB/s"]
    return FabricTestOut(
        cluster="demo",
        operation="op-fabric",
        at=time.time() - 7200,
        seconds=31.4,
        simulated=True,
        leaves=LEAVES,
        measurements=measurements,
        findings=[FabricFindingOut(kind="node", name=SLOW, what=what, how=how, incident=2)],
        unclear=["demo-1-2,demo-2-1: 90 GB/s, 380 GB/s expected; each of its parts is sound in other groups"],
        mismatches=[
            FabricMismatchOut(
                what="NCCL_SOCKET_IFNAME=eth9 in /etc/nccl.conf of demo-1-1 matches no interface (eth0)",
                remedy="name one of these or remove the line; headway run sets the variable itself",
            )
        ],
        skipped=[FabricSkippedOut(node="demo-1-5", why="a job started on it")],
    )


async def put(store: Store) -> None:
    """Stores the result."""
    found = result()
    await store.fabric_tests.record("demo", found.operation, found.at, found.model_dump())
