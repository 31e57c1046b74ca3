"""Jobs: requests for each endpoint, `run` and `submit` for programs, and the handle of a submitted job."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from headway.domain.slurm.job_states import ENDED
from headway.errors import NotFound, Unreachable
from headway.schemas.job_list import JobsPage
from headway.schemas.jobs import ArrayOut, JobOut, JobStacksOut, ScriptOut
from headway.schemas.lineage.lineage import LineageOut
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.reruns import ResumeIn, RetryIn
from headway.schemas.submission.run_request import RunIn, RunOptions, RunOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.schemas.training_metrics import TrainingChartsOut, TrainingMetricsOut
from headway.schemas.trainings import (
    TrainingComparisonOut,
    TrainingGroupsOut,
    TrainingNoteIn,
    TrainingOut,
    TrainingsOut,
)
from headway.sdk.connection import Resource, cluster_path, non_empty
from headway.sdk.reconnect import RECONNECT_S, ServerOutage, follow_log
from headway.sdk.resources.bundles import Bundles
from headway.sdk.resources.clusters import Clusters
from headway.sdk.submission import build_request, script_text, send_files

POLL_S = 1.0


class TrainingFilters(TypedDict, total=False):
    """Selects and sorts trainings. `tag`: a training must have all of them. `where`: conditions such as "loss<2" and
    "accuracy:highest>=0.9". `sort`: "loss", "loss:lowest", or "-accuracy" for the highest first."""

    user: Sequence[str]
    team: Sequence[str]
    state: Sequence[str]
    tag: Sequence[str]
    q: str
    where: Sequence[str]
    sort: str


class Jobs(Resource):
    """A cluster's jobs. `cluster` may be left out of `run`, `submit`, `attach` and `list` when there is one cluster."""

    def sbatch(self, cluster: str, request: SubmitIn) -> SubmitOut:
        """Runs sbatch on the cluster as this person's user."""
        return self._connection.post(cluster_path(cluster, "jobs"), SubmitOut, request, timeout_s=120)

    def check(self, cluster: str, request: CheckJobIn) -> CheckJobOut:
        """Returns whether a job could be submitted, when and where it would start, and what lint finds in its script.
        Submits nothing."""
        return self._connection.post(cluster_path(cluster, "jobs", "check"), CheckJobOut, request, timeout_s=120)

    def create_run(self, cluster: str, request: RunIn) -> RunOut:
        """Generates the batch script of a command and submits it, unless it is a dry run."""
        return self._connection.post(cluster_path(cluster, "run"), RunOut, request, timeout_s=120)

    def tasks(self, cluster: str, job_id: int) -> ArrayOut:
        """Returns the task counts of an array."""
        return self._connection.get(cluster_path(cluster, "jobs", str(int(job_id)), "tasks"), ArrayOut)

    def script(self, cluster: str, job_id: int) -> ScriptOut:
        """Returns the script of a job, its arguments and the flags of sbatch. Values of secrets are masked."""
        return self._connection.get(cluster_path(cluster, "jobs", str(int(job_id)), "script"), ScriptOut)

    def lineage(self, cluster: str, job_id: int) -> LineageOut:
        """Returns the lineage of a job: its script, files, datasets and parent job. Raises NotFound for a job that
        was not submitted through Headway."""
        return self._connection.get(cluster_path(cluster, "jobs", str(int(job_id)), "lineage"), LineageOut)

    def retry(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut:
        """Submits the failed tasks of an array again, or the named one."""
        return self._connection.post(
            cluster_path(cluster, "jobs", str(int(job_id)), "retry"), SubmitOut, request, timeout_s=120
        )

    def rerun(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut:
        """Submits the same job again, or one task of an array."""
        return self._connection.post(
            cluster_path(cluster, "jobs", str(int(job_id)), "rerun"), SubmitOut, request, timeout_s=120
        )

    def resume(self, cluster: str, job_id: int, request: ResumeIn) -> SubmitOut:
        """Submits the same job again, where it continues from a kept checkpoint."""
        return self._connection.post(
            cluster_path(cluster, "jobs", str(int(job_id)), "resume"), SubmitOut, request, timeout_s=120
        )

    def page(
        self,
        cluster: str,
        *,
        all: bool = False,  # noqa: A002
        user: str = "",
        state: str = "",
        cursor: str = "",
    ) -> JobsPage:
        """Returns at most 1000 jobs after `cursor` (`next` of the previous page).

        `stale` of the page: why its data is old, "" when it is current."""
        query = non_empty({"all": "1" if all else "", "user": user, "state": state, "cursor": cursor})
        query |= {"limit": "1000", "sort": "jobid"}
        return self._connection.parse(
            JobsPage, self._connection.request_json("GET", cluster_path(cluster, "jobs"), params=query)
        )

    def get(self, cluster: str, job_id: int, *, task: str = "") -> JobOut:
        """Returns one job; with `task` that task of the array."""
        answer = self._connection.request_json(
            "GET", cluster_path(cluster, "jobs", str(int(job_id))), params=non_empty({"task": task})
        )
        return self._connection.parse(JobOut, answer)

    def metrics(self, cluster: str, job_id: int, *, task: str = "") -> TrainingMetricsOut:
        """Returns the metrics that a job has reported, with their newest values."""
        path = cluster_path(cluster, "jobs", str(int(job_id)), "metrics")
        answer = self._connection.request_json("GET", path, params=non_empty({"task": task}))
        return self._connection.parse(TrainingMetricsOut, answer)

    def metric_series(
        self, cluster: str, job_id: int, names: Sequence[str], *, points: int = 500, task: str = ""
    ) -> TrainingChartsOut:
        """Returns metrics of a job, down-sampled to about `points` points each."""
        path = cluster_path(cluster, "jobs", str(int(job_id)), "metrics", "series")
        params = {"metric": [*names], "points": str(points), **non_empty({"task": task})}
        return self._connection.parse(TrainingChartsOut, self._connection.request_json("GET", path, params=params))

    def metrics_csv(self, cluster: str, job_id: int, names: Sequence[str] = (), *, task: str = "") -> Iterator[bytes]:
        """Yields all points of metrics (of all, if none is named) as CSV, in pieces."""
        path = cluster_path(cluster, "jobs", str(int(job_id)), "metrics", "csv")
        params: dict[str, str | list[str]] = {"metric": [*names], **non_empty({"task": task})}
        with self._connection.stream(path, params, None) as answer:
            yield from answer.iter_bytes()

    def trainings(
        self, cluster: str, *, cursor: str = "", limit: int = 100, **filters: Unpack[TrainingFilters]
    ) -> TrainingsOut:
        """Returns a page of the jobs that reported metrics, the latest first or in the order of `sort`. `cursor`: `next` of the
        previous page."""
        params = {**_training_words(filters), "limit": str(limit), **non_empty({"cursor": cursor})}
        answer = self._connection.request_json("GET", cluster_path(cluster, "trainings"), params=params)
        return self._connection.parse(TrainingsOut, answer)

    def training_groups(
        self, cluster: str, by: str, *, metric: str = "", **filters: Unpack[TrainingFilters]
    ) -> TrainingGroupsOut:
        """Returns trainings in groups of the same user, team, name, state, tag or commit, with the range of a metric."""
        params = {**_training_words(filters), "by": by, **non_empty({"metric": metric})}
        answer = self._connection.request_json("GET", cluster_path(cluster, "trainings", "groups"), params=params)
        return self._connection.parse(TrainingGroupsOut, answer)

    def trainings_csv(
        self, cluster: str, metrics: Sequence[str] = (), **filters: Unpack[TrainingFilters]
    ) -> Iterator[bytes]:
        """Yields matching trainings as CSV in pieces, with a column for each of `metrics`, such as "loss:lowest"."""
        params = {**_training_words(filters), "metric": [*metrics]}
        with self._connection.stream(cluster_path(cluster, "trainings", "csv"), params, None) as answer:
            yield from answer.iter_bytes()

    def annotate(self, cluster: str, job_id: int, request: TrainingNoteIn) -> TrainingOut:
        """Changes the note and the tags of a training."""
        body = request.model_dump(mode="json")
        answer = self._connection.request_json("PATCH", cluster_path(cluster, "trainings", str(int(job_id))), json=body)
        return self._connection.parse(TrainingOut, answer)

    def compare(self, cluster: str, first: int, second: int) -> TrainingComparisonOut:
        """Returns what differs between two jobs."""
        path = cluster_path(cluster, "trainings", str(int(first)), "compare", str(int(second)))
        return self._connection.get(path, TrainingComparisonOut)

    def stacks(self, cluster: str, job_id: int, *, task: str = "") -> JobStacksOut:
        """Returns the Python stacks of all ranks of a running job."""
        path, params = cluster_path(cluster, "jobs", str(int(job_id)), "stacks"), non_empty({"task": task})
        answer = self._connection.request_json("POST", path, params=params, timeout_s=90)
        return self._connection.parse(JobStacksOut, answer)

    def cancel(self, cluster: str, job_id: int, *, task: str = "") -> None:
        """Cancels a job; an array as a whole, or with `task` that one of its tasks."""
        self._connection.request_json(
            "DELETE", cluster_path(cluster, "jobs", str(int(job_id))), params=non_empty({"task": task})
        )

    def log(
        self,
        cluster: str,
        job_id: int,
        *,
        follow: bool = False,
        err: bool = False,
        task: str = "",
        patience_s: float = RECONNECT_S,
    ) -> Iterator[bytes]:
        """Yields the job's output (or with `err` its error output) in pieces; `follow` continues until the job has
        ended.

        An array's output is every task's lines, prefixed with the task's number, or only those of `task`. After a
        lost connection this waits up to `patience_s` seconds for a server and continues where it stopped. Raises
        Unreachable if no server answers by then; immediately for all tasks of an array together, because that output
        has no position."""
        path = cluster_path(cluster, "jobs", str(int(job_id)), "log")
        flags = {"frames": "1", "follow": "1" if follow else "", "err": "1" if err else "", "task": task}
        yield from follow_log(
            lambda at: self._connection.stream(path, non_empty(flags | at), None),
            self._connection.reconnect,
            patience_s,
        )

    def list(
        self,
        cluster: str = "",
        *,
        all: bool = False,  # noqa: A002
        user: str = "",
        state: str = "",
    ) -> builtins.list[JobOut]:
        """Returns queued and running jobs by number; with `all` also recently ended ones. `page` also tells how old they are."""
        name = cluster or self._only_cluster()
        page = self.page(name, all=all, user=user, state=state)
        found = page.jobs
        while page.next:
            page = self.page(name, all=all, user=user, state=state, cursor=page.next)
            found += page.jobs
        return found

    def run(
        self,
        command: Sequence[str],
        *,
        cluster: str = "",
        files: Path | str | None = None,
        **options: Unpack[RunOptions],
    ) -> Job:
        """Runs a command as a job; `options` are the fields of `RunIn`, with its defaults.

        The job works in a copy of the folder `files` (without what its .gitignore excludes). Raises Refused with every
        fault of the request."""
        name = cluster or self._only_cluster()
        digest, git = self._send_files(name, files)
        request = build_request(RunIn, **{**options, "argv": list(command), "bundle": digest, "git": git})
        return Job(self, name, self.create_run(name, request).job_id)

    def submit(
        self,
        path: Path | str,
        args: Sequence[str] = (),
        *,
        cluster: str = "",
        files: Path | str | None = None,
        sbatch: Sequence[str] = (),
        chdir: str = "",
        env: Mapping[str, str] | None = None,
        stage_in: Sequence[str] = (),
        environment: str = "",
        secrets: Sequence[str] = (),
    ) -> Job:
        """Submits a batch script with its arguments; `sbatch` are flags of sbatch that precede it.

        With `files` the job works in a copy of that folder. `stage_in`: datasets (NAME or NAME@VERSION) that are copied to
        $HEADWAY_SCRATCH/NAME on each node. `environment`: software environment (NAME or NAME@VERSION).
        `secrets`: names of secrets that the job finds in files of $HEADWAY_SECRETS_DIR."""
        name = cluster or self._only_cluster()
        script = Path(path)
        if not script.is_file():
            raise NotFound(f"{script}: no such script on this machine")
        text = script_text(script.read_bytes(), str(path))
        digest, git = self._send_files(name, files)
        request = build_request(
            SubmitIn,
            args=list(sbatch),
            script=text,
            script_name=script.name,
            script_args=list(args),
            chdir=chdir,
            env=dict(env or {}),
            bundle=digest,
            git=git,
            stage_in=list(stage_in),
            environment=environment,
            secrets=list(secrets),
        )
        return Job(self, name, self.sbatch(name, request).job_id)

    def attach(self, job_id: int, *, cluster: str = "") -> Job:
        """Returns the handle of an existing job."""
        return Job(self, cluster or self._only_cluster(), job_id)

    def _only_cluster(self) -> str:
        return Clusters(self._connection).only_name()

    def _send_files(self, cluster: str, folder: Path | str | None) -> tuple[str, GitIn | None]:
        if folder is None:
            return "", None
        return send_files(Bundles(self._connection), cluster, Path(folder))


@dataclass(frozen=True)
class Job:
    """A submitted job."""

    jobs: Jobs
    cluster: str
    id: int

    def status(self) -> JobOut:
        """Returns the job's current state on the server."""
        return self.jobs.get(self.cluster, self.id)

    def wait(
        self,
        *,
        timeout_s: float | None = None,
        poll_s: float = POLL_S,
        on_lost: Callable[[Unreachable], None] | None = None,
    ) -> JobOut:
        """Waits until the job has ended (an array: all its tasks) and returns it. Raises TimeoutError after
        `timeout_s`.

        If the server does not answer, this keeps waiting, because the job continues; `on_lost` is called once for
        each outage. Raises Unreachable when no server has answered for two days."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        outage, state = ServerOutage(on_lost), "not known yet"
        while True:
            found = self.poll(outage)
            if found is not None:
                now, over = found
                if over:
                    return now
                state = now.state
            if deadline is not None and time.monotonic() > deadline:
                lost = f"; last answer: {outage.error.message}" if outage.error else ""
                raise TimeoutError(f"job {self.id} is {state} after {timeout_s:g} s{lost}")
            time.sleep(poll_s)

    def poll(self, outage: ServerOutage) -> tuple[JobOut, bool] | None:
        """Returns the result of `state`; None while the server does not answer (its address is looked up again)."""
        try:
            found = self.state()
        except Unreachable as error:
            outage.record(error)
            self.jobs.reconnect()
            return None
        outage.clear()
        return found

    def state(self) -> tuple[JobOut, bool]:
        """Returns the job and whether it has ended.

        An array has ended once all its tasks have, and is FAILED when one of them did not complete."""
        now = self.status()
        if now.state not in ENDED or not now.array_job_id or now.array_job_id != self.id:
            return now, now.state in ENDED
        tasks = self.tasks()
        # Slurm gives the array's number to its last task, whose end says nothing about the others.
        failed = {"state": "FAILED", "exit_code": now.exit_code or 1} if tasks.failed or tasks.cancelled else {}
        return now.model_copy(update={"tasks": tasks, **failed}), not (tasks.running or tasks.pending)

    def logs(self, *, follow: bool = False, err: bool = False, task: int | None = None) -> Iterator[str]:
        """Yields lines of the job's output without line ends; `follow` continues until the job has ended."""
        rest = b""
        task_word = "" if task is None else str(task)
        for piece in self.jobs.log(self.cluster, self.id, follow=follow, err=err, task=task_word):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def tasks(self) -> ArrayOut:
        """Returns the task counts of this array."""
        return self.jobs.tasks(self.cluster, self.id)

    def lineage(self) -> LineageOut:
        """Returns the lineage of the job: its script, files, datasets and parent job."""
        return self.jobs.lineage(self.cluster, self.id)

    def retry(self, *, env: Mapping[str, str] | None = None, task: int | None = None) -> Job:
        """Submits the failed tasks of this array again, or with `task` that failed one."""
        submitted = self.jobs.retry(self.cluster, self.id, _retry_request(env, task))
        return Job(self.jobs, self.cluster, submitted.job_id)

    def rerun(self, *, env: Mapping[str, str] | None = None, task: int | None = None) -> Job:
        """Submits the same job again, or one `task` of the array; `env` supplies secrets, which are not stored."""
        submitted = self.jobs.rerun(self.cluster, self.id, _retry_request(env, task))
        return Job(self.jobs, self.cluster, submitted.job_id)

    def resume(self, step: int, *, env: Mapping[str, str] | None = None, task: int | None = None) -> Job:
        """Submits the same job again, where it continues from the kept checkpoint of `step`. Raises NotFound, with the kept
        steps, if there is none."""
        words = {"env": dict(env or {}), "task": "" if task is None else str(task), "step": step}
        submitted = self.jobs.resume(self.cluster, self.id, build_request(ResumeIn, **words))
        return Job(self.jobs, self.cluster, submitted.job_id)

    def cancel(self, *, task: int | None = None) -> None:
        """Cancels the job; an array as a whole, or with `task` that one of its tasks."""
        self.jobs.cancel(self.cluster, self.id, task="" if task is None else str(task))


def _training_words(filters: TrainingFilters) -> dict[str, str | builtins.list[str]]:
    found: dict[str, str | builtins.list[str]] = {}
    for name, value in filters.items():
        if value:
            found[name] = value if isinstance(value, str) else [str(one) for one in value]  # type: ignore[attr-defined]
    return found


def _retry_request(env: Mapping[str, str] | None, task: int | None) -> RetryIn:
    return build_request(RetryIn, env=dict(env or {}), task="" if task is None else str(task))
