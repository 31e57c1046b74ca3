"""The environment `pytorch` of clusters without real GPUs: the node image's own Python, with its CPU build of PyTorch."""

from __future__ import annotations

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.environment import IMAGE_SOURCE, PYTORCH, EnvironmentVersion, request_digest
from headway.domain.operation_progress import ReportProgress
from headway.environments.environment_file_store import SshEnvironmentFileStore
from headway.errors import HeadwayError

_MADE_BY = "headway"


async def provide_image_environment(cluster: Cluster, context: ClusterContext, report: ReportProgress) -> None:
    """Makes the environment unless it is there or the cluster file lists one of this name: a folder of a few links,
    which needs no network. Another node image makes another version; files that are missing, as after a restore, are
    made again. A failure is reported, and fails nothing."""
    if PYTORCH in cluster.environments:
        return
    store, request = context.store.environments, request_digest(f"{IMAGE_SOURCE} {cluster.image}")
    latest = await store.latest(cluster.name, PYTORCH)
    if latest is not None and latest.source != IMAGE_SOURCE:
        return  # a person has built another one
    known = latest if latest is not None and latest.request == request else None
    try:
        number = known.number if known else await store.next_number(cluster.name, PYTORCH)
        made = await SshEnvironmentFileStore(cluster, context).publish_image(PYTORCH, number, f"image-{cluster.image}")
        if known and made.number == known.number:
            return
        await store.add(
            EnvironmentVersion(
                cluster.name, PYTORCH, made.number, made.sha256, made.python, made.packages, made.bytes, IMAGE_SOURCE,
                request, _MADE_BY, context.store.database.now(), 0,
            ),
            made.lock,
        )  # fmt: skip
    except HeadwayError as error:
        await report("environments", f"{PYTORCH} could not be made: {error.message}", level="warning", done=True)
