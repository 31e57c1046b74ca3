"""A job's progress: the training's reports (node/agent), or lines of the job's log (`jobs.view.log_metrics`).

Both are files on the head. One remote call reads both and continues where the previous call ended. The log of
a job that has reported a loss is no longer read."""

from __future__ import annotations

import base64
import contextlib
import heapq
import json
import math
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from headway.domain.billing.ledger import MAX_STORED_INTEGER, CheckpointStats
from headway.domain.machines.machine import Machine
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.remote.user_helper import HelperConnections, call_helper
from headway.jobs.view.curve import Curve
from headway.jobs.view.ettr import CheckpointStalls, EffectiveTime
from headway.jobs.view.log_metrics import LONGEST_LINE, LogMetricsParser
from headway.transport.program_io import MAX_OUTPUT

MAX_CHECKPOINTS_KEPT = 60  # for the marks of charts
MAX_MORE = 16  # further numbers of a report, as headway_train sends at most
# Fields of a report that have a meaning: of the training, of headway_train and of the agents
_MEANT = frozenset(
    {
        "step",
        "loss",
        "tokens",
        "tokens_per_s",
        "checkpoints",
        "checkpoints_s",
        "run_began",
        "t",
        "n",
        "ago_s",
        "torch_without_cuda",
        "torch_cuda_too_new",
    }
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}")
FIRST_READ_BYTES = 4 * 1024 * 1024  # bytes read from the end of a log that exists at the first read
READ_BYTES = 1024 * 1024
READ_AFTER_END_S = 120.0  # longer than the interval of billing rounds, a minute
MAX_ENDED_JOBS = 500
# Characters of one request, which is one argument of a command; users choose the length of paths.
_MOST_ASKED = 64 * 1024
_MOST_ANSWERED = MAX_OUTPUT // 2  # bytes; base64 adds a third, and an answer is cut at MAX_OUTPUT
_MOST = 2**63  # the limit for a step and for a time in unix seconds; node/agent has the same limit


NO_CUDA = (
    "It holds GPUs, but its PyTorch is built without CUDA and computes on the CPU. Use an environment with CUDA (headway run "
    "--environment pytorch, module load pytorch), a container, or a venv with a build for GPUs."
)
CUDA_TOO_NEW = (
    "It holds GPUs, but its PyTorch is built for a newer CUDA than the driver of its node supports, and finds no GPU; its log "
    "names both versions. Use an environment with an older build (torch<2.11 for drivers before 580), or update the driver."
)


@dataclass
class JobProgress:
    """Progress of a job so far."""

    step: int = 0
    loss: float = math.nan  # the newest reported loss, possibly of an earlier step
    seen: bool = False
    measured: bool = False  # the job reports a loss, not only steps
    points: int = 0  # steps read so far
    at: float = 0.0  # unix seconds of the newest step: as reported, otherwise when it was read
    tokens_per_s: float | None = None
    more: dict[str, float] = field(default_factory=dict)  # further numbers of the newest report, such as lr
    torch_warning: str = ""  # why its PyTorch can't use the real GPUs that it holds, as the agent found
    # from reports only: lines of a log have no times
    effective_time: EffectiveTime = field(default_factory=EffectiveTime)
    stalls: CheckpointStalls = field(default_factory=CheckpointStalls)
    # unix seconds of the reports with newly saved checkpoints
    checkpoints_at: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_CHECKPOINTS_KEPT))
    log_metrics: dict[str, Curve] | None = None  # the metrics of the log by name; None: only its loss is kept
    _curve: Curve = field(default_factory=Curve)  # of the loss
    _log: LogMetricsParser = field(default_factory=LogMetricsParser)
    _began: float = 0.0
    _rest: bytes = b""

    def add_log(self, data: bytes) -> None:
        """Adds the next piece of the log. A piece may end in the middle of a line."""
        for line in self._lines(data):
            for part in line.split(b"\r"):  # progress bars overwrite their own line
                self._line(part)

    def add_reports(self, data: bytes) -> None:
        """Adds the next piece of the reports: JSON objects, one per line. A report may lack some of the values."""
        for line in self._lines(data):
            with contextlib.suppress(ValueError):
                values = json.loads(line)
                if isinstance(values, dict):
                    self._report(values)

    def _report(self, values: dict[str, object]) -> None:
        step, loss, at = _whole(values, "step", _MOST), _number(values, "loss"), _bounded(values, "t", _MOST) or 0.0
        saves, stalled_s = (
            _whole(values, "checkpoints", MAX_STORED_INTEGER),
            _bounded(values, "checkpoints_s", MAX_STORED_INTEGER),
        )
        if step is not None:
            self._step(step)
            if loss is not None:
                self._measure(loss)
            self.at = at
        self.tokens_per_s = _number(values, "tokens_per_s")
        self.more = dict(islice(_further_numbers(values), MAX_MORE))
        if values.get("torch_without_cuda"):
            self.torch_warning = NO_CUDA
        elif values.get("torch_cuda_too_new"):
            self.torch_warning = CUDA_TOO_NEW
        # Already read: the head has thinned the file, and it is read from its beginning.
        if at < self.effective_time.last_report_at:
            return
        if step is not None:
            self._mark_run(_bounded(values, "run_began", _MOST) or 0.0)
        if saves is not None and stalled_s is not None:
            before = self.stalls.count
            self.stalls.add_report(saves, stalled_s)
            if self.stalls.count > before and at:
                self.checkpoints_at.append(at)

    def _mark_run(self, began: float) -> None:
        """Notes the start of a run. `began` is when the reporting process started, 0 where the report does not say
        it. Where several processes report, the newest start counts."""
        restarted = began > self._began > 0
        self._began = max(began, self._began)
        self.effective_time.add_report(self.step, self.at, restarted)
        if restarted:
            self.stalls.start_new_run()

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-LONGEST_LINE:]
        return lines

    def start_new_log(self) -> None:
        """Starts on a log that was written from its beginning again (a requeued job). Drops the unfinished line
        and keeps all points until the job passes their steps again."""
        self._rest = b""

    @property
    def series(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of the kept points, with the newest point last."""
        return self._curve.points

    def _line(self, line: bytes) -> None:
        found = self._log.parse(line)
        if found is None:
            return
        if found.loss is not None:
            self._step(found.step)
            self._measure(found.loss)
        finite = {name: value for name, value in found.values.items() if math.isfinite(value)}
        self.more = {name: value for name, value in finite.items() if value != found.loss}
        curves = self.log_metrics
        for name, value in finite.items() if curves is not None else ():
            if curves is not None and (name in curves or len(curves) < MAX_MORE):
                curves.setdefault(name, Curve()).add(found.step, value)

    def _step(self, step: int) -> None:
        if self.seen and step < self.step:  # the job resumed from a checkpoint and repeats the steps after it
            self._curve.forget_from(step)
            for curve in (self.log_metrics or {}).values():
                curve.forget_from(step)
        self.step, self.seen = step, True
        self.points += 1

    def _measure(self, loss: float) -> None:
        """Sets the loss of the current step."""
        self.measured = True
        self.loss = loss if math.isfinite(loss) else math.nan
        if not math.isnan(self.loss):
            self._curve.add(self.step, loss)
        else:
            self._curve.forget_from(self.step)


def _further_numbers(values: dict[str, object]) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a report that Headway gives no meaning to, in the order of the report."""
    for name, value in values.items():
        if name not in _MEANT and _NAME.fullmatch(name) and isinstance(value, int | float):
            with contextlib.suppress(OverflowError):
                if math.isfinite(value):
                    yield name, float(value)


def _number(values: dict[str, object], name: str) -> float | None:
    try:
        return float(str(values[name]))
    except (KeyError, ValueError):
        return None


def _bounded(values: dict[str, object], name: str, most: int) -> float | None:
    """Returns the value as a number, or None where it is missing or outside 0 to `most`. The sums and the database
    that take these values would fail on larger ones."""
    found = _number(values, name)
    return found if found is not None and 0 <= found <= most else None  # nan fails both comparisons


def _whole(values: dict[str, object], name: str, most: int) -> int | None:
    found = _bounded(values, name, most)
    return None if found is None else int(found)


@dataclass
class _Followed:
    """One file of a job: its log, or its reports (then `path` is empty)."""

    job: int
    user: str = ""
    path: str = ""
    offset: int = -FIRST_READ_BYTES
    progress: JobProgress = field(default_factory=JobProgress)

    @property
    def limit(self) -> int:
        """Returns the number of bytes for the next read."""
        return FIRST_READ_BYTES if self.offset < 0 else READ_BYTES

    def request(self) -> dict[str, object]:
        """Returns the entry for this file in the request to node/user_helper."""
        place = {"user": self.user, "path": self.path} if self.path else {"job": self.job}
        return {**place, "offset": self.offset, "limit": self.limit}

    def add_answer(self, answer: dict[str, object], now: float) -> None:
        """Adds what the helper answered for this file. `now` is in unix seconds."""
        first = self.offset < 0
        if "size" not in answer:
            return
        size, offset = int(str(answer["size"])), int(str(answer["offset"]))
        if size < offset:  # the file was truncated: the next read starts at its beginning
            self.offset = 0
            self.progress.start_new_log()
            return
        data = base64.b64decode(str(answer["b64"]))
        self.offset = offset + len(data)
        if not self.path:
            self.progress.add_reports(data)
            return
        before = self.progress.points
        self.progress.add_log(data)
        if self.progress.points > before and not first:  # the time of lines before the first read is unknown
            self.progress.at = now


def jobs_to_read(jobs: Sequence[JobState], now: float) -> tuple[JobState, ...]:
    """Returns the jobs that may have reported something since the last read: all running jobs, and the jobs that
    ended at most READ_AFTER_END_S ago, of these the MAX_ENDED_JOBS newest. A job writes its last lines as it ends,
    and a short job may write everything then."""
    over = (job for job in jobs if job.state in ENDED and job.start_time and now - job.end_time <= READ_AFTER_END_S)
    return (
        *(job for job in jobs if job.state in RUNNING),
        *heapq.nlargest(MAX_ENDED_JOBS, over, key=lambda job: job.end_time),
    )


class ProgressReader:
    """Keeps the progress of one cluster's jobs, with few remote calls per read. `log_metrics`: also all metrics of their
    logs, not only the loss."""

    def __init__(self, links: HelperConnections, head: Machine, *, log_metrics: bool = False) -> None:
        self._links = links
        self._log_metrics = log_metrics
        self._head = head
        self._logs: dict[int, _Followed] = {}
        self._reports: dict[int, _Followed] = {}

    def _follow_log(self, job: JobState) -> _Followed:
        return _Followed(
            job.id, job.user, job.stdout, progress=JobProgress(log_metrics={} if self._log_metrics else None)
        )

    def progress_of(self, job_id: int) -> JobProgress | None:
        """Returns the progress at the last read, or None if the job has reported nothing."""
        found = [source[job_id].progress for source in (self._reports, self._logs) if job_id in source]
        reporting = [progress for progress in found if progress.seen or progress.torch_warning]
        return next((progress for progress in reporting if progress.measured), reporting[0] if reporting else None)

    def torch_warning(self, job_id: int) -> str:
        """Returns why the job's PyTorch can't use the real GPUs that it holds; "" if nothing was found."""
        return self._reports[job_id].progress.torch_warning if job_id in self._reports else ""

    def losses_by_job(self) -> dict[int, tuple[tuple[float, float], ...]]:
        """Returns for each restarted job: (time of the last report before the restart, seconds of work that was
        repeated) for each restart."""
        losses_of = {job: followed.progress.effective_time.losses for job, followed in self._reports.items()}
        return {job: tuple(losses) for job, losses in losses_of.items() if losses}

    def stalls_by_job(self) -> dict[int, CheckpointStats]:
        """Returns the checkpoint figures of each job that reports its checkpoints."""
        progress_of = {job: followed.progress for job, followed in self._reports.items()}
        return {
            job: CheckpointStats(progress.stalls.count, progress.stalls.stalled_s, progress.effective_time.up_s)
            for job, progress in progress_of.items()
            if progress.stalls.count
        }

    async def read_jobs(self, jobs: Iterable[JobState]) -> None:
        """Reads the output of these jobs since the last read, and forgets jobs that are not in `jobs`."""
        started = [job for job in jobs if job.start_time]
        self._reports = {job.id: self._reports.get(job.id) or _Followed(job.id) for job in started}
        self._logs = {
            job.id: self._logs.get(job.id) or self._follow_log(job)
            for job in started
            if job.stdout.startswith("/") and not self._reports[job.id].progress.measured
        }
        for some in _questions([*self._logs.values(), *self._reports.values()]):
            logs, reports = [file for file in some if file.path], [file for file in some if not file.path]
            request = {
                "do": "read",
                "files": [log.request() for log in logs],
                "reports": [report.request() for report in reports],
            }
            ran = await call_helper(self._links, self._head, request, timeout_s=30)
            for followed, line in zip([*logs, *reports], ran.stdout.splitlines(), strict=False):
                followed.add_answer(json.loads(line), time.time())


def _questions(files: Iterable[_Followed]) -> Iterator[list[_Followed]]:
    """Splits the files into groups, each as large as one command can name and one answer can contain."""
    some: list[_Followed] = []
    asked_bytes = answer_bytes = 0
    for file in files:
        size = len(json.dumps(file.request()))
        if some and (asked_bytes + size > _MOST_ASKED or answer_bytes + file.limit > _MOST_ANSWERED):
            yield some
            some, asked_bytes, answer_bytes = [], 0, 0
        some.append(file)
        asked_bytes += size
        answer_bytes += file.limit
    if some:
        yield some
