"""export kubernetes: writes objects of Kubernetes for a job or a service, sized from what it has used."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output.formatting import plural
from headway.cli.output.losses import print_losses
from headway.convert.kubernetes_export import (
    OF_JOBS,
    OF_SERVICES,
    RESERVE,
    Exported,
    Kind,
    RunUse,
    export_job,
    export_service,
    used_per_node,
)
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.convert.job_description import Used
    from headway.sdk.client import Client

_REPLICAS = 20  # of a service, the latest, whose use is read
_BEFORE_S = 30 * 86400  # of the submission, whose time a requeue renews, until the first run


def kubernetes(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[CLUSTER] JOB|SERVICE", help="Number of a job; or name of a service, or TEAM/NAME."),
    ],
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--kind", metavar="KIND",
            help=f"Of a job: {', '.join(OF_JOBS)}. Of a service: {', '.join(OF_SERVICES)}. Default: the first one.",
        ),
    ] = None,
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Container image; overrides the job's.")] = "",
    queue: Annotated[str, typer.Option("--queue", metavar="QUEUE", help="Queue of Kueue, as a label.")] = "",
    as_requested: Annotated[
        bool, typer.Option("--as-requested", help="Request what the job requested from Slurm, not what it has used.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write to this file; default: standard output."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Also list options that Kubernetes does not need.")] = False,
) -> None:  # fmt: skip
    """Write a job as JobSet, PyTorchJob or RayJob, or a service as Deployment, InferenceService or RayService.

    Pods request the processors and the memory that the job has used, and a quarter more. Standard error lists the options
    and fields that are lost or changed, with the next step.

    headway export kubernetes 12 --kind pytorchjob --image nvcr.io/nvidia/pytorch:25.05-py3 -o train.yaml"""
    cluster, rest = (words[0], words[1:]) if len(words) > 1 else (None, words)
    if len(rest) != 1:
        raise typer.BadParameter(f"give one job or service, not {len(rest)}")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    export = _job if rest[0].partition("_")[0].isdecimal() else _service
    found = export(api, name, rest[0], kind, image, queue, as_requested)
    if out is None:
        sys.stdout.write(found.text)
        sys.stdout.flush()
    else:
        try:
            out.write_text(found.text)
        except OSError as error:
            raise Refused(f"{out}: {error.strerror}", hint="name a file in a folder of yours") from None
    print_losses(found.losses, show_all=show_all)
    if found.used is not None:
        size = f"{plural(found.used.cpus, 'CPU')} and {round(found.used.memory_mib / 1024, 1):g} GiB"
        common.print_note(
            f"each pod requests {size}: the mean use of a node and {RESERVE - 1:.0%} more, at most what the job requested "
            "(if a node needs more than others: --as-requested)"
        )
    elif not as_requested:
        common.print_note("no use is recorded yet: sized as requested from Slurm")


def _job(
    api: Client, cluster: str, word: str, kind: Kind | None, image: str, queue: str, as_requested: bool
) -> Exported:
    found = common.get_job(api, cluster, word)
    script = api.jobs.script(cluster, found.id)
    environment: dict[str, str] = {}
    with contextlib.suppress(NotFound):  # of a job that was not submitted through Headway, nothing more is known
        environment = api.jobs.lineage(cluster, found.id).env
    used = None if as_requested else _used(api, cluster, [found.id], found.submit_time)
    return export_job(
        script.text, script.script_args, script.sbatch_args, environment, kind=kind, image=image, queue=queue, used=used
    )


def _service(
    api: Client, cluster: str, word: str, kind: Kind | None, image: str, queue: str, as_requested: bool
) -> Exported:
    found = api.services.get(cluster, word.replace("/", ":"))
    if not found.file:
        raise Refused(
            f"the file of service {word} is readable for its owner, leads of its team and admins", hint="ask its owner"
        )
    jobs = [one.job_id for one in found.replicas if one.job_id and one.version == found.version][-_REPLICAS:]
    used = None if as_requested else _used(api, cluster, jobs, int(found.created_at))
    return export_service(found.file, kind=kind, image=image, queue=queue, used=used)


def _used(api: Client, cluster: str, jobs: list[int], since: int) -> Used | None:
    """Returns what these jobs have used of each node, from accounting."""
    start = datetime.fromtimestamp(max(0, since - _BEFORE_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    runs = [run for job in jobs for run in api.billing.usage_runs(cluster, job=job, start=start).runs]
    return used_per_node(RunUse(run.node_count, run.elapsed_s, run.used_cpu_s, run.used_memory_mib) for run in runs)
