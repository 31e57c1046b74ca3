"""Energy of nodes and runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing import energy
from headway.domain.billing.ledger import CpuAllocation


def test_unmeasured_energy_is_estimated_from_gpu_type() -> None:
    assert energy.estimate_j("h100", 2 * 3600, 16 * 3600) == (2 * 700 + 16 * 5) * 3600
    assert energy.estimate_j("", 0, 100) == 500
    assert energy.estimate_j("h100", -60, -60) == 0, "measured for a moment longer than it ran"
    assert energy.Energy(1_800_000, 1_800_000).kwh(1.5) == 1.5
    assert [energy.Energy(990, part).marked for part in (0, 10, 11)] == [False, False, True]
    assert (energy.Energy(0, 1).marked, energy.Energy().marked) == (True, False)


def hold(job: int, start: int, end: int, cpus: int, *nodes: str) -> CpuAllocation:
    return CpuAllocation(job, start, end, "main", nodes or ("n1",), cpus)


def test_node_energy_is_shared_by_cpu_seconds() -> None:
    """A node of 8 CPUs at 100 W for two minutes: half of it is held by a job of two nodes, an eighth for a half minute."""
    drawn = [("n1", 60, 100.0), ("n1", 120, 100.0), ("n2", 60, 40.0)]
    holds = [hold(1, -500, 0, 8, "n1", "n2"), hold(2, 30, 90, 1), hold(3, 120, 0, 8), hold(4, -10, 0, 8, "n3")]
    found = energy.shared(drawn, 60, holds, {"n1": 8, "n2": 8, "n3": 8})
    assert found == {(1, -500, "main"): (6000 + 1200, 3 * 240), (2, 30, "main"): (750, 60)}


def test_zero_or_nan_power_counts_as_unmeasured() -> None:
    """Virtual machines may have some; what runs there is estimated."""
    assert energy.shared([("n1", 60, 0.0), ("n1", 120, math.nan)], 60, [hold(1, 0, 0, 8)], {"n1": 8}) == {}


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300), st.integers(1, 12)), max_size=12),
    st.lists(st.floats(0, 5000), min_size=1, max_size=4),
)
def test_run_energy_never_exceeds_node_energy(runs: list[tuple[int, int, int]], watts: list[float]) -> None:
    """However many share it, more CPUs than it has among them."""
    holds = [hold(i, start, start + length, cpus) for i, (start, length, cpus) in enumerate(runs)]
    drawn = [("n1", 60 * (i + 1), value) for i, value in enumerate(watts)]
    found = energy.shared(drawn, 60, holds, {"n1": 8})
    assert sum(joules for joules, _ in found.values()) <= 60 * sum(watts) + len(runs)
    assert sum(joules for joules, _ in energy.shared(drawn, 60, [hold(1, 0, 0, 8)], {"n1": 8}).values()) == (
        pytest.approx(60 * sum(watts), abs=1)
    )
