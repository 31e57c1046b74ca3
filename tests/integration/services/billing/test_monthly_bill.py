"""For generated histories, chargeback bills each GPU second once at its price and sums to the invoice."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.billing.money import cents
from headway.billing.run_resources import allocations_by_group
from headway.domain.billing.ledger import JobRun, NodePrice, NodeSpan, SpanKind
from headway.services.billing import monthly_bill
from headway.services.billing.reports.report_scope import BilledCluster
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, lab, run
from tests.support.servers.server_fakes import Server

NODES = ("lab-1-1", "lab-1-2")
DAY = 24 * H
NAMES = itertools.count()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with lab(tmp_path, Accounting()) as made:
        yield made


Stretch = tuple[int, int, int, int, int, str]  # (pause before it, seconds, GPUs, lost, idle, team): one after the other
STRETCHES = st.lists(
    st.tuples(
        st.integers(0, 3 * DAY), st.integers(0, 6 * DAY), st.integers(1, 8), st.integers(0, DAY), st.integers(0, DAY),
        st.sampled_from(["vision", "speech"]),
    ),
    max_size=6,
)  # fmt: skip


@given(
    st.tuples(STRETCHES, STRETCHES),
    st.integers(-5 * DAY, 30 * DAY),  # the price changes
    st.integers(-2 * DAY, 0),  # the first job begins
    st.lists(st.tuples(st.integers(0, 30 * DAY), st.integers(1, 5 * DAY)), max_size=3),  # the second node is broken
    st.integers(0, 40 * DAY),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_chargeback_bills_each_gpu_second_once_at_its_price(
    server: Server,
    given_: tuple[list[Stretch], list[Stretch]],
    turn: int,
    first: int,
    broken: list[tuple[int, int]],
    now: int,
) -> None:
    """Two nodes of 8 GPUs, made a week before October, at 8 and then at 20 dollars an hour."""
    name = f"c{next(NAMES)}"
    store, begun = server.store, OCTOBER.start
    cluster = (await server.state.clusters.get("lab"))[1]
    await store.machine_lifetimes.record(name, [(node, "main") for node in NODES], [], [], begun - 7 * DAY)
    await store.prices.record(name, [NodePrice("main", float(begun - 7 * DAY), Decimal("8"))])
    await store.prices.record(name, [NodePrice("main", float(begun + turn), Decimal("20"))])
    spans = [NodeSpan(NODES[1], SpanKind.DOWN, begun + at, begun + at + lasted) for at, lasted in broken]
    await store.node_spans.save(name, spans)
    runs: list[JobRun] = []
    expected: dict[str, Fraction] = {}
    for node, stretches in zip(NODES, given_, strict=True):
        at = first
        for pause, lasted, gpus, lost, idle, team in stretches:
            one = run(len(runs) + 1, at + pause, at + pause + lasted, gpus=gpus, nodes=(node,), team=team)
            at += pause + lasted
            if one.start > begun + now:
                break
            one = replace(one, end=0 if one.end > begun + now else one.end)
            runs.append(one)
            await store.runs.save(name, [(one, allocations_by_group(one, cluster.group_of), 0)])
            if one.end:
                await store.runs.record_loss(name, one.job, one.start, min(lost, lasted))
            await store.runs.add_measurements(name, [(one.job, one.start + idle, idle, idle, 0)] if idle else [], begun)
            end = min(one.end or begun + now, OCTOBER.end)
            low = max(one.start, begun)
            dear = max(0, end - max(low, begun + turn))
            cheap = max(0, end - low) - dear
            paid = Fraction(gpus, 8) * (Fraction(20 * dear, H) + Fraction(8 * cheap, H))
            expected[team] = expected.get(team, Fraction(0)) + paid
    found = (await monthly_bill.load_bill(server.state, BilledCluster(name, cluster, begun + now), OCTOBER)).chargeback
    total = sum(one.total_cents for one in found.teams) + sum(one.cents for one in found.unassigned)
    assert total == found.invoice.total_cents == sum(line.amount_cents for line in found.invoice.lines)
    for one in found.teams:
        columns: Any = one.cents
        assert all(amount >= 0 for amount in columns.values())
        mine = sum(columns[column] for column in ("productive", "lost", "allocated_idle"))
        wanted = cents(expected.get(one.team, Fraction(0)))
        assert abs(mine - wanted) <= 4, "a cent of rounding a column, and one a line of the invoice"
