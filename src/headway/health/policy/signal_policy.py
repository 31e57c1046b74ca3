"""Decides what a signal means for its node. Pure: (signal, earlier signals) -> verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.catalog.xid import xid_class, xid_meaning
from headway.domain.incident import DRAINS, FaultAction, Incident, Signal
from headway.domain.slurm.state import JobState

BURST_S = 180.0  # signals of one node within this time are one fault
DAY_S = 86400.0
APP_ERROR_JOBS = 3  # number of different jobs with application errors within a day from which the node is at fault


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a signal (`action`) and why (`why`)."""

    action: FaultAction
    why: str

    @property
    def drains(self) -> bool:
        """Returns whether the action drains the node."""
        return self.action in DRAINS

    @property
    def acts(self) -> bool:
        """Returns whether the action changes anything in Slurm; other actions are only recorded."""
        return self.drains or self.action is FaultAction.RESTART_JOB


def judge_signal(signal: Signal, before: Iterable[Signal], overrides: Mapping[int, str]) -> Verdict:
    """Returns the verdict on a signal. `before`: the node's signals of the last day that no incident has dealt with."""
    if signal.kind != "xid":
        return Verdict(signal.action or FaultAction.WATCH, signal.text)
    kind = xid_class(signal.code, signal.text, overrides)
    what = f"XID {signal.code}: {xid_meaning(signal.code)}"
    if kind is not FaultAction.APP:
        return Verdict(kind, what)
    jobs = {
        one.job
        for one in (*before, signal)
        if one.job is not None
        and one.kind == "xid"
        and 0 <= signal.at - one.at <= DAY_S
        and xid_class(one.code, one.text, overrides) is FaultAction.APP
    }
    if signal.job in jobs and len(jobs) >= APP_ERROR_JOBS:
        return Verdict(FaultAction.DRAIN, f"{what}: errors of {len(jobs)} different jobs within a day")
    return Verdict(FaultAction.APP, what)


def find_incident(signal: Signal, incidents: Iterable[Incident], verdict: Verdict) -> Incident | None:
    """Returns the incident that the signal belongs to: one of its node that is open, or whose last signal came within
    BURST_S of this one. A signal that drains, or that is an application error, is never added to a closed incident.
    Incidents of machines that can't be created or deleted take no signals, because they are no fault of the node."""
    for incident in sorted(incidents, key=lambda one: -one.number):
        if incident.node != signal.node or incident.action is FaultAction.MAKE:
            continue
        if not incident.state.closed:
            return incident
        follows = not verdict.drains and verdict.action is not FaultAction.APP
        if abs(signal.at - incident.last_signal_at) <= BURST_S and follows:
            return incident
    return None


def more_severe(first: FaultAction, second: FaultAction) -> FaultAction:
    """Returns the more severe of two actions."""
    order = list(FaultAction)
    return max(first, second, key=order.index)


def signal_evidence(signal: Signal) -> dict[str, object]:
    """Returns what an incident records about a signal."""
    return {
        "signal": signal.id,
        "at": signal.at,
        "xid": signal.code or None,
        "gpu": signal.gpu,
        "job": signal.job,
        "text": signal.text,
    }


def job_of_gpu(signal: Signal, jobs: Iterable[JobState]) -> int | None:
    """Returns the job that uses the signal's GPU, or the node's only job if GPU assignments are unknown; None if
    unclear."""
    there = [job for job in jobs if signal.node in job.nodes and job.state in {"RUNNING", "COMPLETING"}]
    holds = [job.id for job in there if signal.gpu in job.gpu_indexes.get(signal.node, ())]
    if holds:
        return holds[0]
    return there[0].id if len(there) == 1 and not there[0].gpu_indexes else None
