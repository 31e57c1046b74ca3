"""Jobs for programs: `client.run(...)`, `client.submit(path)`, and a handle for what they started."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from headway.domain.slurm.job_states import ENDED
from headway.errors import NotFound, Refused, Unreachable
from headway.schemas.base import Ask
from headway.schemas.jobs import ArrayOut, JobOut, JobsPage
from headway.schemas.submissions import (
    BundleOut,
    ContainerIn,
    GitIn,
    Launcher,
    LineageOut,
    RetryIn,
    RunIn,
    RunOut,
    SubmitIn,
    SubmitOut,
)
from headway.sdk.reconnect import Away

POLL_S = 1.0
MAX_SCRIPT_BYTES = 4 * 1024 * 1024  # Slurm's own limit for a batch script


class Bundles(Protocol):
    """Where files are sent."""

    def has_bundle(self, cluster: str, digest: str, *, user: str = "") -> bool: ...
    def put_bundle(self, cluster: str, digest: str, archive: bytes, *, user: str = "") -> BundleOut: ...


def send_files(to: Bundles, cluster: str, folder: Path, *, user: str = "") -> tuple[str, GitIn | None]:
    """(digest, commit) of the folder's files, which are on the cluster afterwards. Sends nothing that is there."""
    from headway.sdk.bundle import bundle, git_state

    found = bundle(folder)
    if not to.has_bundle(cluster, found.digest, user=user):
        to.put_bundle(cluster, found.digest, found.archive(), user=user)
    return found.digest, git_state(folder)


def script_text(data: bytes, name: str) -> str:
    """A batch script that sbatch will take. Raises Refused, saying what is wrong with it."""
    if len(data) > MAX_SCRIPT_BYTES:
        raise Refused(
            f"{name}: larger than Slurm takes ({MAX_SCRIPT_BYTES // 1024 // 1024} MiB)",
            hint="keep data in files: --with-files",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{name}: not a text file", hint="submit a script that starts the program") from None
    if not text.strip():
        raise Refused(f"{name}: empty", hint="begin it with #!/bin/bash")
    if not text.startswith("#!"):
        raise Refused(f"{name}: the first line must name an interpreter", hint="begin it with #!/bin/bash")
    if "\r\n" in text:
        raise Refused(f"{name}: has Windows line ends, which sbatch refuses", hint="dos2unix, or set your editor to LF")
    return text


A = TypeVar("A", bound=Ask)


def request_of(kind: type[A], **fields: object) -> A:
    """The request of these fields. Raises Refused with every fault, by its field's name."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        lines = [f"  {'-'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        raise Refused("\n".join(["this can't be sent:", *lines])) from None


class Work(ABC):
    """What a client does with jobs, on top of its calls. `cluster` may be left out when there is one."""

    @abstractmethod
    def only_cluster(self) -> str: ...
    @abstractmethod
    def reconnect(self) -> None: ...
    @abstractmethod
    def sbatch(self, cluster: str, request: SubmitIn) -> SubmitOut: ...
    @abstractmethod
    def make_run(self, cluster: str, request: RunIn) -> RunOut: ...
    @abstractmethod
    def has_bundle(self, cluster: str, digest: str, *, user: str = "") -> bool: ...
    @abstractmethod
    def put_bundle(self, cluster: str, digest: str, archive: bytes, *, user: str = "") -> BundleOut: ...
    @abstractmethod
    def jobs_page(
        self,
        cluster: str,
        *,
        all: bool = False,  # noqa: A002
        user: str = "",
        state: str = "",
        cursor: str = "",
    ) -> JobsPage: ...
    @abstractmethod
    def job(self, cluster: str, job_id: int, *, task: str = "") -> JobOut: ...
    @abstractmethod
    def tasks(self, cluster: str, job_id: int) -> ArrayOut: ...
    @abstractmethod
    def lineage(self, cluster: str, job_id: int) -> LineageOut: ...
    @abstractmethod
    def retry(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut: ...
    @abstractmethod
    def rerun(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut: ...
    @abstractmethod
    def cancel(self, cluster: str, job_id: int, *, task: str = "") -> None: ...
    @abstractmethod
    def log(
        self, cluster: str, job_id: int, *, follow: bool = False, err: bool = False, task: str = ""
    ) -> Iterator[bytes]: ...

    def jobs(self, cluster: str = "", *, all: bool = False, user: str = "", state: str = "") -> list[JobOut]:  # noqa: A002
        """Queued and running jobs by number; with `all` those that ended lately too. `jobs_page` also says how old they are."""
        where = cluster or self.only_cluster()
        page = self.jobs_page(where, all=all, user=user, state=state)
        found = page.jobs
        while page.next:
            page = self.jobs_page(where, all=all, user=user, state=state, cursor=page.next)
            found += page.jobs
        return found

    def run(
        self,
        command: Sequence[str],
        *,
        cluster: str = "",
        files: Path | str | None = None,
        nodes: int = 1,
        gpus: int = 0,
        tasks: int = 0,
        launcher: Launcher | None = None,
        name: str = "",
        time: str = "",
        partition: str = "",
        team: str = "",
        after: Sequence[str] = (),
        container: ContainerIn | None = None,
        env: Mapping[str, str] | None = None,
        sbatch: Sequence[str] = (),
        stage_in: Sequence[str] = (),
    ) -> Job:
        """Runs a command as a job; `files` is the folder that it works in a copy of (by its .gitignore), `gpus` counts for
        each node. Raises Refused, saying all that is wrong with the request."""
        where = cluster or self.only_cluster()
        digest, git = send_files(self, where, Path(files)) if files is not None else ("", None)
        request = request_of(
            RunIn,
            argv=list(command),
            launcher=launcher,
            nodes=nodes,
            gpus=gpus,
            tasks=tasks,
            name=name,
            time=time,
            partition=partition,
            team=team,
            after=list(after),
            container=container,
            env=dict(env or {}),
            sbatch=list(sbatch),
            bundle=digest,
            git=git,
            stage_in=list(stage_in),
        )
        return Job(self, where, self.make_run(where, request).job_id)

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
    ) -> Job:
        """Submits a batch script with its arguments; `sbatch` are flags that go before it. With `files` it works in a
        copy of that folder. `stage_in`: datasets (NAME or NAME@VERSION) that lie in $HEADWAY_SCRATCH/NAME on each node."""
        where = cluster or self.only_cluster()
        script = Path(path)
        if not script.is_file():
            raise NotFound(f"{script}: no such script on this machine")
        text = script_text(script.read_bytes(), str(path))
        digest, git = send_files(self, where, Path(files)) if files is not None else ("", None)
        request = request_of(
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
        )
        return Job(self, where, self.sbatch(where, request).job_id)

    def attach(self, job_id: int, *, cluster: str = "") -> Job:
        """The handle of a job that exists."""
        return Job(self, cluster or self.only_cluster(), job_id)


@dataclass(frozen=True)
class Job:
    """A submitted job."""

    client: Work
    cluster: str
    id: int

    def status(self) -> JobOut:
        return self.client.job(self.cluster, self.id)

    def wait(
        self,
        *,
        timeout_s: float | None = None,
        poll_s: float = POLL_S,
        on_lost: Callable[[Unreachable], None] | None = None,
    ) -> JobOut:
        """How it ended (of an array: once all its tasks have). Raises TimeoutError when that takes longer.

        A server that does not answer is waited for, as the job runs on: `on_lost` is told once each time. Raises Unreachable
        when none has answered for two days."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        away, state = Away(on_lost), "not known yet"
        while True:
            found = self.polled(away)
            if found is not None:
                now, over = found
                if over:
                    return now
                state = now.state
            if ends is not None and time.monotonic() > ends:
                lost = f"; last asked: {away.why.message}" if away.why else ""
                raise TimeoutError(f"job {self.id} is {state} after {timeout_s:g} s{lost}")
            time.sleep(poll_s)

    def polled(self, away: Away) -> tuple[JobOut, bool] | None:
        """What `ended` says; None when the server does not answer, which is looked for then."""
        try:
            found = self.ended()
        except Unreachable as error:
            away.lost(error)
            self.client.reconnect()
            return None
        away.heard()
        return found

    def ended(self) -> tuple[JobOut, bool]:
        """(how it stands, whether it is over). An array is over once all its tasks are, and FAILED when one of them
        did not complete."""
        now = self.status()
        if now.state not in ENDED or not now.array_job_id or now.array_job_id != self.id:
            return now, now.state in ENDED
        tasks = self.tasks()
        # The array's own number is that of its last task, whose end says nothing of the others.
        failed = {"state": "FAILED", "exit_code": now.exit_code or 1} if tasks.failed else {}
        return now.model_copy(update={"tasks": tasks, **failed}), not (tasks.running or tasks.pending)

    def logs(self, *, follow: bool = False, err: bool = False, task: int | None = None) -> Iterator[str]:
        """Lines of its output, without their ends; `follow` goes on until it has ended."""
        rest = b""
        word = "" if task is None else str(task)
        for piece in self.client.log(self.cluster, self.id, follow=follow, err=err, task=word):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def tasks(self) -> ArrayOut:
        return self.client.tasks(self.cluster, self.id)

    def lineage(self) -> LineageOut:
        return self.client.lineage(self.cluster, self.id)

    def retry(self, *, env: Mapping[str, str] | None = None, task: int | None = None) -> Job:
        """The failed tasks of this array once more; with `task` that one, which has failed."""
        done = self.client.retry(self.cluster, self.id, _again(env, task))
        return Job(self.client, self.cluster, done.job_id)

    def rerun(self, *, env: Mapping[str, str] | None = None, task: int | None = None) -> Job:
        """The same job once more, of an array with `task` only that one; `env` gives secrets again, which are not kept."""
        done = self.client.rerun(self.cluster, self.id, _again(env, task))
        return Job(self.client, self.cluster, done.job_id)

    def cancel(self, *, task: int | None = None) -> None:
        """An array whole, or with `task` that one of it."""
        self.client.cancel(self.cluster, self.id, task="" if task is None else str(task))


def _again(env: Mapping[str, str] | None, task: int | None) -> RetryIn:
    return request_of(RetryIn, env=dict(env or {}), task="" if task is None else str(task))
