"""Decides which action follows a symptom. XIDs are judged here; a failed check of the agent names its action itself
(`node/agent/checks`). Pure: (symptom, earlier symptoms) -> verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.catalog.xid import xid_class, xid_meaning
from headway.domain.incident import DRAINS, FaultAction, Incident, Symptom
from headway.domain.slurm.nodes_and_jobs import JobState

BURST_S = 180.0  # symptoms of one node within this time are one fault
DAY_S = 86400.0
APP_ERROR_JOBS = 3  # number of different jobs with application errors within a day from which the node is at fault


@dataclass(frozen=True, slots=True)
class Verdict:
    """The action on a symptom, and the reason (`why`)."""

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


def judge_symptom(symptom: Symptom, before: Iterable[Symptom], overrides: Mapping[int, str]) -> Verdict:
    """Returns the verdict on a symptom. `before`: the node's symptoms of the last day that no incident has dealt with."""
    if symptom.kind != "xid":
        return Verdict(symptom.action or FaultAction.WATCH, symptom.text)
    kind = xid_class(symptom.code, symptom.text, overrides)
    what = f"XID {symptom.code}: {xid_meaning(symptom.code)}"
    if kind is not FaultAction.APP:
        return Verdict(kind, what)
    jobs = {
        earlier.job
        for earlier in (*before, symptom)
        if earlier.job is not None
        and earlier.kind == "xid"
        and 0 <= symptom.at - earlier.at <= DAY_S
        and xid_class(earlier.code, earlier.text, overrides) is FaultAction.APP
    }
    if symptom.job in jobs and len(jobs) >= APP_ERROR_JOBS:
        return Verdict(FaultAction.DRAIN, f"{what}: errors of {len(jobs)} different jobs within a day")
    return Verdict(FaultAction.APP, what)


def find_incident(symptom: Symptom, incidents: Iterable[Incident], verdict: Verdict) -> Incident | None:
    """Returns the incident that the symptom belongs to: one of its node that is open, or whose last symptom came within
    BURST_S of this one. A symptom that drains, or that is an application error, is never added to a closed incident.
    Incidents of machines that can't be created or deleted take no symptoms, because they are no fault of the node."""
    for incident in sorted(incidents, key=lambda incident: -incident.number):
        if incident.node != symptom.node or incident.action is FaultAction.MAKE:
            continue
        if not incident.state.closed:
            return incident
        follows = not verdict.drains and verdict.action is not FaultAction.APP
        if abs(symptom.at - incident.last_symptom_at) <= BURST_S and follows:
            return incident
    return None


def more_severe(first: FaultAction, second: FaultAction) -> FaultAction:
    """Returns the more severe of two actions."""
    order = list(FaultAction)
    return max(first, second, key=order.index)


def symptom_evidence(symptom: Symptom) -> dict[str, object]:
    """Returns what an incident records about a symptom."""
    return {
        "signal": symptom.id,  # a key of stored steps
        "at": symptom.at,
        "xid": symptom.code or None,
        "gpu": symptom.gpu,
        "job": symptom.job,
        "text": symptom.text,
    }


def job_of_gpu(symptom: Symptom, jobs: Iterable[JobState]) -> int | None:
    """Returns the job that uses the symptom's GPU, or the node's only job if GPU assignments are unknown; None if
    unclear."""
    there = [job for job in jobs if symptom.node in job.nodes and job.state in {"RUNNING", "COMPLETING"}]
    holds = [job.id for job in there if symptom.gpu in job.gpu_indexes.get(symptom.node, ())]
    if holds:
        return holds[0]
    return there[0].id if len(there) == 1 and not there[0].gpu_indexes else None
