"""The typed client: one method per endpoint, wire models in and out, HeadwayError subclasses for every failure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Literal

from headway.errors import NotFound, Unreachable
from headway.schemas.backups import BackupIn, BackupOut, BenchIn, RestoreIn, RotateIn, VerifyIn, VolumeSpeedOut
from headway.schemas.base import ErrorOut
from headway.schemas.clusters import (
    ApplyIn,
    ChangeSetOut,
    ClusterOut,
    Document,
    DownIn,
    EventOut,
    OperationOut,
    RollIn,
    ScaleIn,
    StatusOut,
)
from headway.schemas.datasets import DatasetIn, DatasetOut, DatasetRemoveIn, S3In
from headway.schemas.incidents import FaultIn, FaultMadeOut, IncidentOut, NodeHistoryOut, ReturnIn
from headway.schemas.jobs import ArrayOut, JobOut, JobsPage
from headway.schemas.nodes import DeedOut, DoneOut, DrainIn, NodeDetailOut, NodeTestIn, RebootIn
from headway.schemas.people import AccessOut, MeOut, PersonIn, PersonOut, ServerOut, SignInLinkOut, TokenIn, TokenOut
from headway.schemas.storage import StorageOut
from headway.schemas.stream_frames import frames
from headway.schemas.submissions import (
    BundleOut,
    CommandIn,
    ExecIn,
    ExecOut,
    LineageOut,
    NotebookIn,
    NotebookLinkOut,
    NotebookOut,
    PipelineIn,
    PipelineOut,
    PipelineRetryIn,
    RetryIn,
    RunIn,
    RunOut,
    SubmitIn,
    SubmitOut,
)
from headway.sdk.billing import Costs
from headway.sdk.discover import start_hint
from headway.sdk.errors import to_error
from headway.sdk.jobs import Work
from headway.sdk.reconnect import followed
from headway.sdk.transport import part

STOPPED_PATIENCE_S = 15.0  # a server that was stopped in good order may be about to start again
SSE_SILENCE_S = 40.0  # the server pings open streams every 10 s


class Client(Costs, Work):
    """A connection to one server: `Client()` finds the one in reach, as the commands do. Use as a context manager, or
    call `close`.

    `refresh` gives (url, token) again after the connection was lost: a restarted server may have another port.
    Raises Unreachable ("no server; headway server start") when there is none in reach."""

    # --- clusters

    def plan(self, document: Document) -> ChangeSetOut:
        """What `apply` of this document would change. Changes nothing."""
        return self._post("/plan", ChangeSetOut, document)

    def apply(
        self, document: Document, *, digest: str = "", confirmed: bool = False, deadline_s: int | None = None
    ) -> OperationOut:
        """Queues an apply. NeedsConfirmation when it disturbs something and `confirmed` is False; Conflict when
        `digest` is not that of the plan as it is now, or nodes with jobs would go and no `deadline_s` is given."""
        name = str(document.spec.get("name") or "")
        body = ApplyIn(document=document, digest=digest, confirmed=confirmed, deadline_s=deadline_s)
        return self._post(f"/clusters/{part(name)}/apply", OperationOut, body)

    def plan_scale(self, cluster: str, groups: Mapping[str, int]) -> ChangeSetOut:
        return self._post(f"/clusters/{part(cluster)}/scale/plan", ChangeSetOut, ScaleIn(groups=dict(groups)))

    def scale(
        self,
        cluster: str,
        groups: Mapping[str, int],
        *,
        digest: str = "",
        confirmed: bool = False,
        deadline_s: int | None = None,
    ) -> OperationOut:
        """Queues another number of nodes, by group ("" where there is one). Raises as `apply`."""
        body = ScaleIn(groups=dict(groups), digest=digest, confirmed=confirmed, deadline_s=deadline_s)
        return self._post(f"/clusters/{part(cluster)}/scale", OperationOut, body)

    def plan_roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None
    ) -> ChangeSetOut:
        """Which nodes a roll would make anew."""
        body = RollIn(back=back, head=head, by_s=by_s)
        return self._post(f"/clusters/{part(cluster)}/roll/plan", ChangeSetOut, body)

    def roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None, stop: bool = False
    ) -> OperationOut:
        """Queues another image for nodes, one after the other: the present one, or (`back`) the one before. Where it steps aside
        for another operation, `kept` of its end names the one that goes on."""
        body = RollIn(back=back, head=head, by_s=by_s, stop=stop)
        return self._post(f"/clusters/{part(cluster)}/roll", OperationOut, body)

    def down(self, cluster: str, *, delete_data: bool = False) -> OperationOut:
        return self._post(f"/clusters/{part(cluster)}/down", OperationOut, DownIn(delete_data=delete_data))

    # --- backups and keys

    def backup(self, cluster: str, to: str, passphrase: str) -> OperationOut:
        """Queues a backup into a folder of the server's machine; its operation's `kept` names the file."""
        return self._post(f"/clusters/{part(cluster)}/backup", OperationOut, BackupIn(to=to, passphrase=passphrase))

    def backups(self, folder: str = "") -> list[BackupOut]:
        """In a folder of the server's machine, the latest first; "": in those that clusters' files name."""
        return self._list("/backups", BackupOut, params={"folder": folder})

    def verify_backup(self, path: str, passphrase: str) -> BackupOut:
        """Reads all of it. Refused when it is not whole."""
        return self._post("/backups/verify", BackupOut, VerifyIn(path=path, passphrase=passphrase), timeout_s=3600)

    def restore(self, cluster: str, path: str, passphrase: str, *, confirmed: bool = False) -> OperationOut:
        """Queues bringing a cluster back. NeedsConfirmation when the server has one of this name and `confirmed` is
        False."""
        body = RestoreIn(path=path, passphrase=passphrase, confirmed=confirmed)
        return self._post(f"/clusters/{part(cluster)}/restore", OperationOut, body)

    def rotate(self, cluster: str, what: Literal["munge", "jwt", "ssh", "database"]) -> OperationOut:
        """Queues another key in a key's place."""
        return self._post(f"/clusters/{part(cluster)}/secrets/rotate", OperationOut, RotateIn(what=what))

    def storage(self, cluster: str) -> StorageOut:
        """Each volume: which nodes have lost it, how full it is, how fast it was when it was last measured."""
        return self._get(f"/clusters/{part(cluster)}/storage", StorageOut)

    def storage_bench(self, cluster: str, *, node: str = "", mib: int = 256) -> list[VolumeSpeedOut]:
        """How fast each volume is, from one machine ("" = the head). Takes as long as it takes to write and read."""
        body = BenchIn(node=node, mib=mib)
        found = self._json("POST", f"/clusters/{part(cluster)}/storage/bench", body=body, timeout_s=3600)
        return [VolumeSpeedOut.model_validate(row) for row in found]

    # --- datasets

    def datasets(self, cluster: str) -> list[DatasetOut]:
        """Every version there is, by name and number."""
        return self._list(f"/clusters/{part(cluster)}/datasets", DatasetOut)

    def add_dataset(self, cluster: str, name: str, source: str, *, s3: S3In | None = None) -> OperationOut:
        """Queues another version, of a folder of the server's machine or of s3://BUCKET/PREFIX (`s3`: headway.sdk.s3.s3_access);
        its operation's `kept` names where it is mounted."""
        return self._post(
            f"/clusters/{part(cluster)}/datasets",
            OperationOut,
            DatasetIn.model_validate({"name": name, "source": source, "s3": s3}),
        )

    def verify_dataset(self, cluster: str, name: str, version: int) -> OperationOut:
        """Queues reading all of it again; the operation fails when a file is damaged."""
        return self._post(f"/clusters/{part(cluster)}/datasets/{part(name)}/{int(version)}/verify", OperationOut)

    def remove_dataset(self, cluster: str, name: str, version: int, *, force: bool = False) -> OperationOut:
        """Queues taking it away. Conflict while jobs' lineage names it, unless `force`."""
        path = f"/clusters/{part(cluster)}/datasets/{part(name)}/{int(version)}/remove"
        return self._post(path, OperationOut, DatasetRemoveIn(force=force))

    # --- what there is

    def clusters(self) -> list[ClusterOut]:
        return self._list("/clusters", ClusterOut)

    def cluster(self, cluster: str) -> ClusterOut:
        return self._get(f"/clusters/{part(cluster)}", ClusterOut)

    def status(self, cluster: str) -> StatusOut:
        """Readiness checks and nodes."""
        return self._get(f"/clusters/{part(cluster)}/status", StatusOut)

    def document(self, cluster: str) -> Document:
        """The document that was last applied."""
        return Document.model_validate(self._json("GET", f"/clusters/{part(cluster)}/document"))

    def access(self, cluster: str) -> AccessOut:
        """What plain ssh needs to reach the cluster's login as this person."""
        return self._get(f"/clusters/{part(cluster)}/access", AccessOut)

    def only_cluster(self) -> str:
        """The name of the one cluster there is. NotFound when there is none or more than one."""
        names = [c.name for c in self.clusters()]
        if len(names) == 1:
            return names[0]
        if not names:
            raise NotFound("there is no cluster yet", hint="headway init, then headway apply")
        raise NotFound(f"which cluster? there are {len(names)}: {', '.join(names)}", hint="name one")

    # --- faults

    def incidents(self, cluster: str, *, steps: bool = False) -> list[IncidentOut]:
        """The latest first; with `steps` also the steps of each, the jobs it moved, and its times."""
        asked = {"steps": "true"} if steps else None
        return self._list(f"/clusters/{part(cluster)}/incidents", IncidentOut, asked)

    def incident(self, cluster: str, number: int) -> IncidentOut:
        return self._get(f"/clusters/{part(cluster)}/incidents/{int(number)}", IncidentOut)

    def node_history(self, cluster: str, node: str) -> NodeHistoryOut:
        return self._get(f"/clusters/{part(cluster)}/nodes/{part(node)}/history", NodeHistoryOut)

    def return_node(self, cluster: str, number: int, *, false_alarm: bool = False) -> IncidentOut:
        """Tests the incident's node and returns it to service. Raises Conflict when a test fails."""
        path = f"/clusters/{part(cluster)}/incidents/{int(number)}/return"
        return self._post(path, IncidentOut, ReturnIn(false_alarm=false_alarm), timeout_s=120)

    # --- one node

    def node(self, cluster: str, node: str) -> NodeDetailOut:
        return self._get(f"/clusters/{part(cluster)}/nodes/{part(node)}", NodeDetailOut)

    def drain(self, cluster: str, node: str, reason: str) -> DoneOut:
        return self._post(f"/clusters/{part(cluster)}/nodes/{part(node)}/drain", DoneOut, DrainIn(reason=reason))

    def undrain(self, cluster: str, node: str) -> DoneOut:
        """Back to service; through its tests where an incident is open. Raises Conflict when one fails."""
        return self._post(f"/clusters/{part(cluster)}/nodes/{part(node)}/return", DoneOut, timeout_s=330)

    def reboot(self, cluster: str, node: str, *, busy: bool = False) -> DeedOut:
        """Begins it; ask `node` how it ended."""
        return self._post(f"/clusters/{part(cluster)}/nodes/{part(node)}/reboot", DeedOut, RebootIn(busy=busy))

    def test_node(self, cluster: str, node: str, *, hard: bool = False) -> DeedOut:
        """Begins them; ask `node` how they ended."""
        return self._post(f"/clusters/{part(cluster)}/nodes/{part(node)}/test", DeedOut, NodeTestIn(hard=hard))

    def fault(self, cluster: str, fault: FaultIn) -> FaultMadeOut:
        """Makes a fault on a local cluster, or heals it."""
        return self._post(f"/clusters/{part(cluster)}/faults", FaultMadeOut, fault, timeout_s=120)

    # --- operations

    def operation(self, operation: str) -> OperationOut:
        return self._get(f"/operations/{part(operation)}", OperationOut)

    def operations(self, cluster: str = "") -> list[OperationOut]:
        """The latest first, at most 50."""
        return self._list("/operations", OperationOut, params={"cluster": cluster} if cluster else None)

    def events(
        self, operation: str, *, after: int = 0, patience_s: float = 60.0, on_lost: Callable[[], None] | None = None
    ) -> Iterator[EventOut]:
        """The operation's progress, from event `after` on, until it is finished; ask `operation()` for its end.

        Outlives a server that is killed and started again: reconnects for up to `patience_s` after each loss, then
        raises Unreachable. `on_lost` is called once a loss (it may start the server), but not when the server was
        stopped in good order: whoever did that wants it stopped, or starts it again."""
        seen = after
        lost: tuple[float, Unreachable] | None = None  # how long to try again, and why
        while True:
            stopped = False
            try:
                for kind, event in self._event_stream(operation, seen):
                    lost = None
                    if kind == "end":
                        return
                    if kind == "stopping":
                        stopped = True
                        break
                    if event is not None:
                        seen = event.seq
                        yield event
                error = Unreachable("the server was stopped; the work goes on with its next start", hint=start_hint())
            except Unreachable as caught:
                error = caught
            if lost is None:
                wait_s = min(patience_s, STOPPED_PATIENCE_S) if stopped else patience_s
                lost = (time.monotonic() + wait_s, error)
                if on_lost is not None and not stopped:
                    on_lost()
            if time.monotonic() > lost[0]:
                raise lost[1]
            time.sleep(0.2)
            self.reconnect()

    def wait(self, operation: str, *, patience_s: float = 60.0) -> OperationOut:
        """Follows the operation without showing anything; its final state."""
        for _ in self.events(operation, patience_s=patience_s):
            pass
        return self.operation(operation)

    # --- jobs

    def sbatch(self, cluster: str, request: SubmitIn) -> SubmitOut:
        """The real sbatch on the cluster, as this person's user."""
        return self._post(f"/clusters/{part(cluster)}/jobs", SubmitOut, request, timeout_s=120)

    def make_run(self, cluster: str, request: RunIn) -> RunOut:
        """Makes the script of a command and submits it, unless it is a dry run."""
        return self._post(f"/clusters/{part(cluster)}/run", RunOut, request, timeout_s=120)

    def has_bundle(self, cluster: str, digest: str, *, user: str = "") -> bool:
        """Whether these files are on the cluster."""
        path = f"/clusters/{part(cluster)}/bundles/{part(digest)}"
        return BundleOut.model_validate(self._json("GET", path, params=_given({"user": user}))).present

    def put_bundle(self, cluster: str, digest: str, archive: bytes, *, user: str = "") -> BundleOut:
        """Sends a tar.gz of files, to be kept under their digest."""
        path = f"/clusters/{part(cluster)}/bundles/{part(digest)}"
        said = self._json("PUT", path, data=archive, params=_given({"user": user}), timeout_s=600)
        return BundleOut.model_validate(said)

    def tasks(self, cluster: str, job_id: int) -> ArrayOut:
        """How the tasks of an array stand."""
        return self._get(f"/clusters/{part(cluster)}/jobs/{int(job_id)}/tasks", ArrayOut)

    def lineage(self, cluster: str, job_id: int) -> LineageOut:
        """Where a job comes from. NotFound for one that was not submitted by way of Headway."""
        return self._get(f"/clusters/{part(cluster)}/jobs/{int(job_id)}/lineage", LineageOut)

    def retry(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut:
        """The failed tasks of an array once more, or the one that is named."""
        return self._post(f"/clusters/{part(cluster)}/jobs/{int(job_id)}/retry", SubmitOut, request, timeout_s=120)

    def rerun(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut:
        """The same job once more, or one task of an array."""
        return self._post(f"/clusters/{part(cluster)}/jobs/{int(job_id)}/rerun", SubmitOut, request, timeout_s=120)

    def notebooks(self, cluster: str) -> list[NotebookOut]:
        return self._list(f"/clusters/{part(cluster)}/notebooks", NotebookOut)

    def start_notebook(self, cluster: str, request: NotebookIn) -> NotebookOut:
        """Submits JupyterLab as a job; `notebook` says when it runs."""
        return self._post(f"/clusters/{part(cluster)}/notebooks", NotebookOut, request, timeout_s=120)

    def notebook(self, cluster: str, notebook: str) -> NotebookOut:
        return self._get(f"/clusters/{part(cluster)}/notebooks/{part(notebook)}", NotebookOut)

    def notebook_link(self, cluster: str, notebook: str) -> NotebookLinkOut:
        """An address that leads one browser in, once, within a minute."""
        return self._post(f"/clusters/{part(cluster)}/notebooks/{part(notebook)}/link", NotebookLinkOut)

    def stop_notebook(self, cluster: str, notebook: str) -> None:
        self._json("DELETE", f"/clusters/{part(cluster)}/notebooks/{part(notebook)}")

    def start_pipeline(self, cluster: str, request: PipelineIn) -> PipelineOut:
        """Submits every step. Raises Refused, naming all faults, before the first."""
        return self._post(f"/clusters/{part(cluster)}/pipelines", PipelineOut, request, timeout_s=300)

    def pipelines(self, cluster: str) -> list[PipelineOut]:
        """The latest first."""
        return self._list(f"/clusters/{part(cluster)}/pipelines", PipelineOut)

    def pipeline(self, cluster: str, pipeline: str) -> PipelineOut:
        """By its id, or the latest of its name."""
        return self._get(f"/clusters/{part(cluster)}/pipelines/{part(pipeline)}", PipelineOut)

    def retry_pipeline(self, cluster: str, pipeline: str, request: PipelineRetryIn) -> PipelineOut:
        """Failed steps once more, and all that follow them."""
        path = f"/clusters/{part(cluster)}/pipelines/{part(pipeline)}/retry"
        return self._post(path, PipelineOut, request, timeout_s=300)

    def jobs_page(
        self,
        cluster: str,
        *,
        all: bool = False,  # noqa: A002
        user: str = "",
        state: str = "",
        cursor: str = "",
    ) -> JobsPage:
        """At most 1000 of them, behind `cursor` (`next` of the page before). `stale`: why they are old, "" when they are not."""
        asked = _given({"all": "1" if all else "", "user": user, "state": state, "cursor": cursor})
        asked |= {"limit": "1000", "sort": "jobid"}
        return self._read(JobsPage, self._json("GET", f"/clusters/{part(cluster)}/jobs", params=asked))

    def job(self, cluster: str, job_id: int, *, task: str = "") -> JobOut:
        """With `task` that one of the array."""
        said = self._json("GET", f"/clusters/{part(cluster)}/jobs/{int(job_id)}", params=_given({"task": task}))
        return self._read(JobOut, said)

    def cancel(self, cluster: str, job_id: int, *, task: str = "") -> None:
        """An array by its own number is cancelled whole, with `task` that one of it."""
        self._json("DELETE", f"/clusters/{part(cluster)}/jobs/{int(job_id)}", params=_given({"task": task}))

    def log(
        self,
        cluster: str,
        job_id: int,
        *,
        follow: bool = False,
        err: bool = False,
        task: str = "",
        patience_s: float = 60.0,
    ) -> Iterator[bytes]:
        """The job's output (or with `err` its error output) in pieces; `follow` goes on until the job has ended. Of an
        array: every task's lines with its number before them, or only those of `task`.

        It ends only with the log: a server that goes is waited for `patience_s` seconds, and the log goes on where it
        was. Raises Unreachable when none comes, at once for an array's tasks together, which have no such place."""
        path = f"/clusters/{part(cluster)}/jobs/{int(job_id)}/log"
        flags = {"frames": "1", "follow": "1" if follow else "", "err": "1" if err else "", "task": task}
        yield from followed(lambda at: self._stream(path, _given(flags | at), None), self.reconnect, patience_s)

    def exec(self, cluster: str, request: ExecIn, *, timeout_s: float = 3600.0) -> ExecOut:
        """One command on the login; its exit code and output untouched."""
        return self._post(f"/clusters/{part(cluster)}/exec", ExecOut, request, timeout_s=timeout_s)

    def command(
        self, cluster: str, argv: Sequence[str], user: str = "", read: Callable[[], bytes] | None = None
    ) -> Generator[tuple[str, bytes]]:
        """("out" | "err", bytes) of a command on the login as they come, and last ("code", digits). `read` gives the
        next piece of its standard input, b"" at the end; it is called in a thread. Closing the iterator ends the
        command."""
        from headway.sdk.stdin import stdin_thread

        path = f"/clusters/{part(cluster)}/commands"
        key = os.urandom(16).hex() if read else ""
        ask = CommandIn(argv=list(argv), user=user, input=key)
        with self._stream(path, None, None, method="POST", body=ask) as answer:
            if read:
                stdin_thread(lambda piece: self._put(f"{path}/{key}/input", piece), read)
            for kind, data in frames(answer.iter_raw()):
                if kind == "error":
                    raise to_error(ErrorOut.model_validate_json(data))
                yield kind, data
                if kind == "code":
                    return
        raise Unreachable("the server ended before the command did", hint="headway server status")

    # --- people

    def me(self) -> MeOut:
        return self._get("/me", MeOut)

    def sign_in_link(self) -> SignInLinkOut:
        """A one-time link that signs a browser in as this person."""
        return self._post("/signin-links", SignInLinkOut)

    def tokens(self) -> list[TokenOut]:
        return self._list("/tokens", TokenOut)

    def create_token(self, request: TokenIn) -> TokenOut:
        """The answer carries the token itself, this once."""
        return self._post("/tokens", TokenOut, request)

    def delete_token(self, token_id: str) -> None:
        self._json("DELETE", f"/tokens/{part(token_id)}")

    def people(self) -> list[PersonOut]:
        return self._list("/people", PersonOut)

    def put_person(self, person: str, request: PersonIn) -> PersonOut:
        """Makes the person, or gives them this role and Linux user."""
        return self._read(PersonOut, self._json("PUT", f"/people/{part(person)}", body=request))

    def delete_person(self, person: str) -> None:
        self._json("DELETE", f"/people/{part(person)}")

    def audit(self, narrowed: dict[str, str]) -> Iterator[bytes]:
        """The audit trail, as the server writes it: `format` is jsonl or csv."""
        with self._stream("/audit/export", narrowed, self._timeout_s) as answer:
            yield from answer.iter_bytes()

    def server(self) -> ServerOut:
        return self._get("/server", ServerOut)

    def _event_stream(self, operation: str, after: int) -> Iterator[tuple[str, EventOut | None]]:
        """("open", None), ("progress", event) each, then ("end", None) when the operation is finished, or ("stopping",
        None) when the server is about to end."""
        params = {"after": str(after)} if after else None
        with self._stream(f"/operations/{part(operation)}/events", params, SSE_SILENCE_S) as answer:
            yield "open", None
            kind = ""
            data: list[str] = []
            for line in answer.iter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    kind = value.strip()
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not line and kind:
                    text = "\n".join(data)
                    yield kind, EventOut.model_validate_json(text) if kind == "progress" else None
                    kind, data = "", []


def _given(params: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}
