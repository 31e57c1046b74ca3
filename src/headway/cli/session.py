"""What every command needs: the server, which cluster is meant, and how answers are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer

from headway.errors import HeadwayError, NeedsConfirmation, Refused

if TYPE_CHECKING:
    from typing import Unpack

    from headway.schemas.backups import BackupOut, VolumeSpeedOut
    from headway.schemas.billing import (
        BudgetOut,
        CapacityOut,
        ChargebackOut,
        EnergyOut,
        EstimateOut,
        GoodputOut,
        InvoiceOut,
        JobGoodputOut,
        NodeStatesOut,
        RunsOut,
        UsageOut,
    )
    from headway.schemas.clusters import ChangeSetOut, ClusterOut, Document, EventOut, OperationOut, StatusOut
    from headway.schemas.datasets import DatasetOut, S3In
    from headway.schemas.incidents import FaultIn, FaultMadeOut, IncidentOut, NodeHistoryOut
    from headway.schemas.jobs import ArrayOut, JobOut
    from headway.schemas.nodes import DeedOut, DoneOut, NodeDetailOut
    from headway.schemas.people import (
        AccessOut,
        MeOut,
        PersonIn,
        PersonOut,
        ServerOut,
        SignInLinkOut,
        TokenIn,
        TokenOut,
    )
    from headway.schemas.storage import StorageOut
    from headway.schemas.submissions import (
        BundleOut,
        CheckJobIn,
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
    from headway.sdk.billing import Only


class Format(StrEnum):
    table = "table"
    json = "json"


def complete_cluster(incomplete: str) -> list[str]:
    """Cluster names for the shell; silent where there is no server."""
    try:
        return [c.name for c in connect().clusters() if c.name.startswith(incomplete)]
    except HeadwayError:
        return []


Output = Annotated[
    Format, typer.Option("-o", "--output", help="table for people, json for programs.", show_default=False)
]
ClusterName = Annotated[
    str | None,
    typer.Argument(metavar="CLUSTER", help="May be left out when there is one.", autocompletion=complete_cluster),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", help="May be left out when there is one.", autocompletion=complete_cluster),
]


class Api(Protocol):
    """What the commands ask of `headway.sdk.client.Client`; its docstrings hold."""

    url: str

    def plan(self, document: Document) -> ChangeSetOut: ...
    def apply(
        self, document: Document, *, digest: str = "", confirmed: bool = False, deadline_s: int | None = None
    ) -> OperationOut: ...
    def plan_roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None
    ) -> ChangeSetOut: ...
    def roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None, stop: bool = False
    ) -> OperationOut: ...
    def plan_scale(self, cluster: str, groups: Mapping[str, int]) -> ChangeSetOut: ...
    def scale(
        self,
        cluster: str,
        groups: Mapping[str, int],
        *,
        digest: str = "",
        confirmed: bool = False,
        deadline_s: int | None = None,
    ) -> OperationOut: ...
    def down(self, cluster: str, *, delete_data: bool = False) -> OperationOut: ...
    def backup(self, cluster: str, to: str, passphrase: str) -> OperationOut: ...
    def backups(self, folder: str) -> list[BackupOut]: ...
    def verify_backup(self, path: str, passphrase: str) -> BackupOut: ...
    def restore(self, cluster: str, path: str, passphrase: str, *, confirmed: bool = False) -> OperationOut: ...
    def rotate(self, cluster: str, what: Literal["munge", "jwt", "ssh", "database"]) -> OperationOut: ...
    def storage(self, cluster: str) -> StorageOut: ...
    def storage_bench(self, cluster: str, *, node: str = "", mib: int = 256) -> list[VolumeSpeedOut]: ...
    def datasets(self, cluster: str) -> list[DatasetOut]: ...
    def add_dataset(self, cluster: str, name: str, source: str, *, s3: S3In | None = None) -> OperationOut: ...
    def verify_dataset(self, cluster: str, name: str, version: int) -> OperationOut: ...
    def remove_dataset(self, cluster: str, name: str, version: int, *, force: bool = False) -> OperationOut: ...
    def clusters(self) -> list[ClusterOut]: ...
    def cluster(self, cluster: str) -> ClusterOut: ...
    def status(self, cluster: str) -> StatusOut: ...
    def access(self, cluster: str) -> AccessOut: ...
    def only_cluster(self) -> str: ...
    def reconnect(self) -> None: ...
    def incidents(self, cluster: str, *, steps: bool = False) -> list[IncidentOut]: ...
    def incident(self, cluster: str, number: int) -> IncidentOut: ...
    def node_history(self, cluster: str, node: str) -> NodeHistoryOut: ...
    def node(self, cluster: str, node: str) -> NodeDetailOut: ...
    def drain(self, cluster: str, node: str, reason: str) -> DoneOut: ...
    def undrain(self, cluster: str, node: str) -> DoneOut: ...
    def reboot(self, cluster: str, node: str, *, busy: bool = False) -> DeedOut: ...
    def test_node(self, cluster: str, node: str, *, hard: bool = False) -> DeedOut: ...
    def return_node(self, cluster: str, number: int, *, false_alarm: bool = False) -> IncidentOut: ...
    def fault(self, cluster: str, fault: FaultIn) -> FaultMadeOut: ...
    def operation(self, operation: str) -> OperationOut: ...
    def operations(self, cluster: str = "") -> list[OperationOut]: ...
    def events(
        self, operation: str, *, after: int = 0, patience_s: float = 60.0, on_lost: Any = None
    ) -> Iterator[EventOut]: ...
    def sbatch(self, cluster: str, request: SubmitIn) -> SubmitOut: ...
    def make_run(self, cluster: str, request: RunIn) -> RunOut: ...
    def has_bundle(self, cluster: str, digest: str, *, user: str = "") -> bool: ...
    def put_bundle(self, cluster: str, digest: str, archive: bytes, *, user: str = "") -> BundleOut: ...
    def tasks(self, cluster: str, job_id: int) -> ArrayOut: ...
    def lineage(self, cluster: str, job_id: int) -> LineageOut: ...
    def retry(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut: ...
    def rerun(self, cluster: str, job_id: int, request: RetryIn) -> SubmitOut: ...
    def notebooks(self, cluster: str) -> list[NotebookOut]: ...
    def start_notebook(self, cluster: str, request: NotebookIn) -> NotebookOut: ...
    def notebook(self, cluster: str, notebook: str) -> NotebookOut: ...
    def notebook_link(self, cluster: str, notebook: str) -> NotebookLinkOut: ...
    def start_pipeline(self, cluster: str, request: PipelineIn) -> PipelineOut: ...
    def pipelines(self, cluster: str) -> list[PipelineOut]: ...
    def pipeline(self, cluster: str, pipeline: str) -> PipelineOut: ...
    def retry_pipeline(self, cluster: str, pipeline: str, request: PipelineRetryIn) -> PipelineOut: ...
    def jobs(self, cluster: str, *, all: bool = False, user: str = "", state: str = "") -> list[JobOut]: ...
    def job(self, cluster: str, job_id: int, *, task: str = "") -> JobOut: ...
    def cancel(self, cluster: str, job_id: int, *, task: str = "") -> None: ...
    def log(
        self, cluster: str, job_id: int, *, follow: bool = False, err: bool = False, task: str = ""
    ) -> Iterator[bytes]: ...
    def command(
        self, cluster: str, argv: Sequence[str], user: str = "", read: Callable[[], bytes] | None = None
    ) -> Generator[tuple[str, bytes]]: ...
    def me(self) -> MeOut: ...
    def sign_in_link(self) -> SignInLinkOut: ...
    def people(self) -> list[PersonOut]: ...
    def put_person(self, person: str, request: PersonIn) -> PersonOut: ...
    def delete_person(self, person: str) -> None: ...
    def audit(self, narrowed: dict[str, str]) -> Iterator[bytes]: ...
    def tokens(self) -> list[TokenOut]: ...
    def create_token(self, request: TokenIn) -> TokenOut: ...
    def delete_token(self, token_id: str) -> None: ...
    def server(self) -> ServerOut: ...
    def usage(
        self,
        cluster: str,
        *,
        by: Sequence[str] = ("team",),
        start: str = "",
        end: str = "",
        **only: Unpack[Only],
    ) -> UsageOut: ...
    def usage_runs(
        self,
        cluster: str,
        *,
        start: str = "",
        end: str = "",
        job: int = 0,
        cause: str = "",
        cursor: str = "",
        **only: Unpack[Only],
    ) -> RunsOut: ...
    def node_states(
        self, cluster: str, *, start: str = "", end: str = "", group: str = "", cursor: str = ""
    ) -> NodeStatesOut: ...
    def invoice(self, cluster: str, period: str = "") -> InvoiceOut: ...
    def close_invoice(self, cluster: str, period: str) -> InvoiceOut: ...
    def chargeback(self, cluster: str, period: str = "") -> ChargebackOut: ...
    def goodput(self, cluster: str, period: str = "") -> GoodputOut: ...
    def goodput_of_job(self, cluster: str, job: int) -> JobGoodputOut: ...
    def budgets(self, cluster: str) -> list[BudgetOut]: ...
    def energy(self, cluster: str, period: str = "") -> EnergyOut: ...
    def capacity(self, cluster: str, period: str = "") -> CapacityOut: ...
    def estimate(self, cluster: str, request: CheckJobIn) -> EstimateOut: ...


def connect() -> Api:
    """The server in reach. Raises Unreachable ("no server") when there is none."""
    from headway.sdk.discover import discover

    return discover()


def pick(api: Api, name: str | None) -> str:
    """`name`, or the one cluster there is where none was given. Raises NotFound when that is not clear, and as `named`."""
    return api.only_cluster() if name is None else named(name)


def named(cluster: str) -> str:
    """Raises BadParameter for "": `headway down "$NAME"` without a NAME must not mean the only cluster there is."""
    if not cluster:
        raise typer.BadParameter("the cluster's name is empty: say it, or leave it out where there is one")
    return cluster


def expand(path: Path | str) -> Path:
    """With the home of `~` or `~ann` in its place. Raises BadParameter where nobody has that name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise typer.BadParameter(f"{path}: there is no such home folder") from None


def split_cluster(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Job ids are numbers and cluster names start with a letter: ("lab" or None, the other words)."""
    if words and (not words[0] or words[0][0].isalpha()):
        return words[0], list(words[1:])
    return None, list(words)


def check_job_ids(words: Sequence[str]) -> None:
    """Raises BadParameter for a word that is neither a job's number nor an array's task (12_3)."""
    for word in words:
        parts = word.split("_")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise typer.BadParameter(f"{word!r} is not a job id")


def job(api: Api, cluster: str, word: str) -> JobOut:
    """Job `12`, or task 3 of array `12_3`. Raises NotFound."""
    number, task = job_and_task(word)
    return api.job(cluster, number, task=task) if task else api.job(cluster, number)


def job_and_task(word: str) -> tuple[int, str]:
    """`12` -> (12, ""); `12_3` -> (12, "3")."""
    number, _, task = word.partition("_")
    return int(number), task


def print_json(answer: Any) -> None:
    """A wire model, or a list of them."""
    data = [item.model_dump(mode="json") for item in answer] if isinstance(answer, list) else answer
    if hasattr(data, "model_dump"):
        data = data.model_dump(mode="json")
    print(json.dumps(data, indent=2))  # noqa: T201


def say(text: str = "") -> None:
    """A line on standard output."""
    typer.echo(text)


def note(text: str) -> None:
    """A line for the person on standard error: standard output stays what the command is asked for."""
    sys.stdout.flush()
    typer.echo(text, err=True)


def warn_if_old(cluster: ClusterOut) -> None:
    """Says, beside the answer, that it is not what is now."""
    if cluster.stale:
        note(f"these figures are old: {cluster.stale}; headway status {cluster.name}")


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str, *, yes: bool, otherwise: str) -> None:
    """Asks on a terminal. Raises NeedsConfirmation without one (unless `yes`), Refused when the answer is no."""
    if yes:
        return
    if not at_terminal():
        raise NeedsConfirmation(otherwise, hint="--yes goes ahead without asking")
    if not typer.confirm(question, default=False):
        raise Refused("nothing was done")
