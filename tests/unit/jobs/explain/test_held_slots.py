"""A waiting job is told why slots without a machine do not help it yet, and when they may."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.jobs.explain.pending_explanation import explain_pending
from headway.jobs.explain.phrases import format_phrase
from headway.jobs.explain.placement_search import ClusterSnapshot
from tests.support.clusters.explained_jobs import ALL_HELD, CLUSTER, FULL, NODES, NOW, node, pending

GROUP = replace(CLUSTER.groups[0], name="more", queue_time_s=900, max_usd_per_hour=Decimal(40), slots=NODES)
MORE = replace(CLUSTER, groups=(GROUP,))
BUSY, SLOTS = FULL[:6], NODES[6:]


def slot(name: str, reason: str) -> NodeState:
    return node(name, 0, "IDLE", "DRAIN", "POWERED_DOWN", reason=reason)


def needs(*held: NodeState, count: int = 1) -> str:
    job = replace(pending("Resources", node_count=count, gpus=8 * count), eligible_time=int(NOW) - 180)
    world = ClusterSnapshot.from_readings(MORE, BUSY, (*ALL_HELD[:2], job), (), NOW, held)
    found = explain_pending(job, world)
    assert found is not None
    return format_phrase(found.needs, NOW)


def test_job_is_told_when_it_has_waited_long_enough() -> None:
    held = [slot(name, "headway: held: no job has waited 15 min for it") for name in SLOTS]
    assert needs(*held).endswith(
        "none is free; job 802 of alice ends in 14 min at the latest; lab-2-[3-4] are created when a job has waited 15 min: "
        "this one in 12 min"
    )


def test_price_limit_is_named_with_its_field() -> None:
    held = slot(SLOTS[0], "headway: held: over the limit of 40 USD an hour of group more")
    assert needs(held).endswith(
        "; lab-2-3 is not created: the price limit of group more is reached (groups.more.usd_per_hour is 40)"
    )


def test_machines_that_could_not_be_had_are_named_with_the_cloud_s_reason() -> None:
    closed = [slot(name, f"headway: closed until {NOW + 240:.0f}: z1 has no m5.large now") for name in SLOTS]
    assert needs(*closed).endswith("; lab-2-[3-4] can't be had now: z1 has no m5.large now; next try in 4 min")


def test_slots_count_as_nodes_that_would_fit() -> None:
    held = [slot(name, "headway: held: no job has waited 15 min for it") for name in SLOTS]
    assert "only" not in needs(*held, count=8)
    assert "only 6 nodes of train have that" in needs(count=8)
