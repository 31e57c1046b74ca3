"""Each XID has the right class and drains the node if needed; repeated and consequential symptoms join one incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.xid import xid_class, xid_table
from headway.domain.incident import DRAINS, FaultAction, Incident, IncidentState, Symptom
from headway.health.policy.xid_verdicts import BURST_S, find_incident, judge_symptom, more_severe

NOW = 1_000_000.0


def symptom(code: int, *, job: int | None = 7, at: float = NOW, text: str = "", node: str = "lab-1-1") -> Symptom:
    return Symptom(f"{node}:{code}:{at}:{job}", at, node, code, 3, text, job)


def incident(
    state: IncidentState = IncidentState.OUT, action: FaultAction = FaultAction.RMA, at: float = NOW
) -> Incident:
    return Incident(1, "lab", "lab-1-1", "XID 79", action, state, at, at)


def test_every_xid_has_a_known_class() -> None:
    assert len(xid_table()) > 70
    assert xid_table()[79].kind is FaultAction.RMA
    assert xid_table()[31].kind is FaultAction.APP
    assert {row.kind for row in xid_table().values()} == set(FaultAction) - {
        FaultAction.MOUNT,
        FaultAction.RECLAIM,
        FaultAction.MAKE,
        FaultAction.LINK,
        FaultAction.HOST_DISK,
    }


@pytest.mark.parametrize(
    ("code", "drains"), [(79, True), (48, True), (31, False), (45, False), (63, False), (999, False)]
)
def test_only_gpu_faults_drain_node(code: int, drains: bool) -> None:
    assert judge_symptom(symptom(code), (), {}).drains is drains


def test_cluster_file_overrides_xid_class() -> None:
    assert judge_symptom(symptom(79), (), {79: "log"}).action is FaultAction.LOG
    assert judge_symptom(symptom(63), (), {63: "drain"}).drains


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", FaultAction.RESET),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)", FaultAction.REBOOT),
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", FaultAction.DRAIN),
        ("GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", FaultAction.LOG),
        ("something new", FaultAction.WATCH),
    ],
)
def test_xid_154_uses_recovery_action_in_its_text(text: str, action: FaultAction) -> None:
    assert xid_class(154, text, {}) is action


def test_third_app_error_of_different_jobs_in_a_day_drains_node() -> None:
    first, second = symptom(31, job=1, at=NOW - 7200), symptom(13, job=2, at=NOW - 3600)
    assert judge_symptom(symptom(31, job=3), (first, second), {}).drains
    assert not judge_symptom(symptom(31, job=2), (first, second), {}).drains, "one job's errors count once"
    assert not judge_symptom(symptom(31, job=3), (replace(first, at=NOW - 90_000), second), {}).drains, (
        "more than a day ago"
    )
    assert not judge_symptom(symptom(31, job=None), (first, second), {}).drains, "of no job"
    assert not judge_symptom(symptom(31, job=3), (first, replace(second, code=63)), {}).drains, (
        "another kind of symptom"
    )


def folded(one: Symptom, *incidents: Incident) -> Incident | None:
    return find_incident(one, incidents, judge_symptom(one, (), {}))


def test_symptom_bursts_and_consequences_join_one_incident() -> None:
    open_one = incident()
    assert folded(symptom(45, at=NOW + 1), open_one) is open_one
    assert folded(symptom(79, at=NOW + 86400), open_one) is open_one, "the node is out: it stays one fault"
    assert folded(symptom(79, node="lab-1-2"), open_one) is None
    over = incident(IncidentState.RETURNED)
    assert folded(symptom(45, at=NOW + BURST_S), over) is over
    assert folded(symptom(45, at=NOW + BURST_S + 1), over) is None
    assert folded(symptom(79, at=NOW + 1), over) is None, "a node that was returned and fails again is a new fault"


def test_more_severe_repair_wins() -> None:
    assert more_severe(FaultAction.RESTART_JOB, FaultAction.RMA) is FaultAction.RMA
    assert [more_severe(DRAINS[0], action) for action in DRAINS] == list(DRAINS)
