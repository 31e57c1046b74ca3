"""Whether a version of a model passes its gates, by what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.jobs.promotions.gates_file import Gate

WAITING = "waiting"  # for a job
PASSED, FAILED = "passed", "failed"
SKIPPED = "skipped"  # because another gate had failed
DONE = "done"  # state of a gate's job whose metrics are complete


@dataclass(frozen=True)
class GateJobState:
    """A job of the gates. `state`: submitting, running, done or failed; `why`: of a failed one. `metrics`: of a job that is
    done; None where a value is not finite."""

    state: str = "submitting"
    job_id: int = 0
    at: float = 0.0  # when it was first submitted
    why: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Approval:
    """An approval of the version. `roles`: those that its person had then and still has."""

    person: str
    roles: tuple[str, ...]
    at: float
    files: str  # digest of the version's files that was approved


@dataclass(frozen=True)
class Known:
    """What is known of a version. `run`: the metrics of its run. `files`: the digest of its files. `usd`: what its source job and
    the jobs of the gates have cost, None if it is not known. `asker`: who asks for the promotion."""

    run: Mapping[str, float | None] = field(default_factory=dict)
    jobs: Mapping[str, GateJobState] = field(default_factory=dict)
    approvals: Mapping[str, Sequence[Approval]] = field(default_factory=dict)
    files: str = ""
    usd: float | None = None
    asker: str = ""


@dataclass(frozen=True)
class GateResult:
    """A gate, with what it wants and what it saw. `job_id`: of the job whose metric it reads."""

    name: str
    state: str  # waiting, passed, failed or skipped
    wants: str
    saw: str = ""
    job_id: int = 0


def gate_results(gates: Mapping[str, Gate], known: Known) -> list[GateResult]:
    """Returns the result of each gate, in the order of the file."""
    return [_result(name, gate, known) for name, gate in gates.items()]


def _result(name: str, gate: Gate, known: Known) -> GateResult:
    if gate.approval is not None:
        return _approval(name, gate.approval, known)
    if gate.max_usd is not None:
        return _budget(name, gate.max_usd, known)
    metric = gate.metric or gate.rerun or ""
    low, high = gate.min, gate.max
    if gate.rerun is not None:
        first = known.run.get(metric)
        if first is None:
            return GateResult(name, FAILED, f"{metric} of the run and of a rerun", f"the run has no value of {metric}")
        off = abs(first) * (gate.tolerance or 0.0)
        low, high = first - off, first + off
    wants = _range(metric, low, high)
    if not gate.job_name:
        return _metric(GateResult(name, FAILED, wants), metric, known.run.get(metric), low, high)
    job = known.jobs.get(gate.job_name, GateJobState())
    found = GateResult(name, WAITING, wants, job_id=job.job_id)
    if job.state == FAILED:
        return replace(found, state=FAILED, saw=f"job {gate.job_name} failed: {job.why}")
    if job.state != DONE:
        return found
    return _metric(found, metric, job.metrics.get(metric), low, high)


def _metric(found: GateResult, metric: str, value: float | None, low: float | None, high: float | None) -> GateResult:
    if value is None:
        return replace(found, state=FAILED, saw=f"no value of {metric}")
    passes = (low is None or value >= low) and (high is None or value <= high)
    return replace(found, state=PASSED if passes else FAILED, saw=f"{metric} {value:.6g}")


def _range(metric: str, low: float | None, high: float | None) -> str:
    if low is None:
        return f"{metric} at most {high:.6g}"
    return f"{metric} at least {low:.6g}" if high is None else f"{metric} from {low:.6g} to {high:.6g}"


def _approval(name: str, role: str, known: Known) -> GateResult:
    """The newest approval by a person with the role decides, among those of the same files and not of the asker."""
    article = "an" if role[0] in "ao" else "a"
    wants = f"approval {name} by {article} {role} other than {known.asker}"
    given = [one for one in known.approvals.get(name, ()) if role in one.roles and one.person != known.asker]
    of_files = [one for one in given if one.files == known.files]
    if of_files:
        return GateResult(name, PASSED, wants, f"approved by {of_files[-1].person}")
    if given:
        return GateResult(name, FAILED, wants, f"{given[-1].person} approved other files of this version")
    others = [one.person for one in known.approvals.get(name, ())]
    return GateResult(name, FAILED, wants, f"approved only by {', '.join(others)}" if others else "not approved")


def _budget(name: str, most: float, known: Known) -> GateResult:
    wants = f"cost of at most {most:,.2f} USD"
    if any(job.state not in (DONE, FAILED) for job in known.jobs.values()):
        return GateResult(name, WAITING, wants)
    if known.usd is None:
        return GateResult(name, FAILED, wants, "the cost is not known")
    return GateResult(name, PASSED if known.usd <= most else FAILED, wants, f"{known.usd:,.2f} USD")
