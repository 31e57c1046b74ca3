"""Clusters."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Admin, Anyone, AnyoneAllClusters, Member, Planner, State
from headway.api.http.pagination import ANY, Page, States, Text, contains, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.clusters import (
    AccessOut,
    ApplyIn,
    ChangeSetOut,
    ClusterOut,
    Document,
    DownIn,
    ScaleGroupsIn,
    SlurmExportOut,
    StatusOut,
)
from headway.schemas.operations import OperationOut
from headway.services.cluster import clusters as service
from headway.services.cluster import planning
from headway.services.cluster.cluster_to_schema import cluster_out

router = APIRouter(prefix=API_PREFIX, tags=["clusters"])


@router.post("/plan", name="plan")
async def plan_cluster(document: Document, state: State, who: Planner) -> ChangeSetOut:
    """Returns what applying this document would change."""
    return await planning.plan_document(state, who, document)


@router.post("/clusters/{name}/apply", status_code=202, name="apply")
async def apply_cluster(name: str, body: ApplyIn, state: State, who: Admin) -> OperationOut:
    """Queues an apply. Follow it at /operations/{id}/events."""
    return await service.apply_document(state, who, name, body)


@router.post("/clusters/{name}/scale/plan")
async def plan_scale(name: str, body: ScaleGroupsIn, state: State, who: Planner) -> ChangeSetOut:
    """Returns what another number of nodes would change."""
    return await planning.plan_scale(state, who, name, body)


@router.post("/clusters/{name}/scale", status_code=202, name="scale")
async def scale_cluster(name: str, body: ScaleGroupsIn, state: State, who: Admin) -> OperationOut:
    """Queues a change of the number of nodes: up in one step, down by draining. Nodes with running jobs are removed
    only if `deadline_s` says how long those jobs may continue before they are requeued."""
    return await service.scale_cluster(state, who, name, body)


@router.post("/clusters/{name}/down", status_code=202, name="down")
async def take_cluster_down(name: str, body: DownIn, state: State, who: Admin) -> OperationOut:
    """Queues taking the cluster down. Its data is kept unless `delete_data` is set."""
    return await service.take_down(state, who, name, delete_data=body.delete_data)


@router.get("/clusters")
async def list_clusters(
    state: State, who: AnyoneAllClusters, page: Page, q: Text = "", status: States = ANY
) -> list[ClusterOut]:
    """Returns the clusters that the person may see, by name."""
    rows = await state.store.clusters.all()
    found = [cluster_out(row, state.live.snapshot(row.name)) for row in rows if who.may_see_cluster(row.name)]
    fit = [row for row in found if contains(q, row.name) and fits(row.state, status)]
    return page.cut(fit, lambda row: (row.name,))


@router.get("/clusters/{name}")
async def get_cluster(name: str, state: State, _: Anyone) -> ClusterOut:
    """Returns one cluster, as last read."""
    return await service.get_cluster(state, name)


@router.get("/clusters/{name}/status")
async def get_cluster_status(name: str, state: State, _: Anyone) -> StatusOut:
    """Returns the cluster's checks, each with a result and a message, and its nodes, read now."""
    return await service.get_status(state, name)


@router.get("/clusters/{name}/document")
async def get_cluster_document(name: str, state: State, _: Member) -> Document:
    """Returns the document that was last applied, without secrets."""
    return await service.get_document(state, name)


@router.get("/clusters/{name}/access")
async def get_cluster_access(name: str, state: State, who: Member) -> AccessOut:
    """Returns what the person needs to reach the cluster with plain ssh."""
    return await service.get_ssh_access(state, who, name)


@router.get("/clusters/{name}/slurm-export")
async def export_slurm(name: str, state: State, _: Admin) -> SlurmExportOut:
    """Returns plain Slurm files of the cluster, which run without Headway. No secret is in them."""
    return await service.export_slurm(state, name)
