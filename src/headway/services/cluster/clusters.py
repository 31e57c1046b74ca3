"""One cluster: its state, its stored document, SSH access to it, and queueing the operations that change it."""

from __future__ import annotations

import asyncio

from headway.domain.machines.machine import MachineState
from headway.errors import Conflict
from headway.schemas.clusters import (
    AccessOut,
    ApplyIn,
    CheckOut,
    ClusterOut,
    Document,
    ScaleGroupsIn,
    SlurmExportOut,
    StatusOut,
)
from headway.schemas.operations import OperationOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster import planning
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.cluster.document_secrets import without_secrets
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.nodes.nodes_to_schema import node_outs


async def get_cluster(state: AppState, name: str) -> ClusterOut:
    """Returns the cluster as last read. Raises NotFound."""
    return cluster_out(await state.clusters.row(name), state.live.snapshot(name))


async def get_status(state: AppState, name: str) -> StatusOut:
    """Returns the cluster's checks and nodes, read now."""
    row, cluster = await state.clusters.get(name)
    snapshot, checks = await asyncio.gather(state.readings.refresh(cluster), state.readings.checks(cluster))
    return StatusOut(
        cluster=cluster_out(row, snapshot),
        checks=[CheckOut.model_validate(check) for check in checks],
        nodes=node_outs(cluster, snapshot),
    )


async def get_document(state: AppState, name: str) -> Document:
    """Returns the document that was last applied, without secrets."""
    return without_secrets(Document.model_validate((await state.clusters.row(name)).document))


async def get_ssh_access(state: AppState, who: Principal, name: str) -> AccessOut:
    """Returns the addresses and host keys for plain ssh to the cluster. Raises Conflict before its head exists."""
    _, cluster = await state.clusters.get(name)
    machines = await state.backend.lifecycle.machines(cluster)
    by_name = {machine.name: machine for machine in machines}
    heads = [by_name[name] for name in cluster.heads if name in by_name]
    head = next((machine for machine in heads if machine.state is MachineState.RUNNING), heads[0] if heads else None)
    if head is None:
        raise Conflict(f"{cluster.head} does not exist yet", hint=f"headway status {name}")
    lines = []
    for machine in machines:
        key = " ".join(machine.host_key.split()[:2])
        if key:
            lines += [f"{machine.name} {key}", f"{_known_host(machine.address, machine.port)} {key}"]
    return AccessOut(
        cluster=name,
        user=who.user,
        head=head.name,
        address=head.address,
        port=head.port,
        host_keys=lines,
        machines={machine.name: machine.address for machine in machines},
        ports={machine.name: machine.port for machine in machines if machine.port != 22},
    )


async def export_slurm(state: AppState, name: str) -> SlurmExportOut:
    """Returns plain Slurm files of the cluster. Raises NotFound; Refused if it has no machines."""
    _, cluster = await state.clusters.get(name)
    found = await state.backend.lifecycle.slurm_export(cluster)
    kept = sum(entry.kept for entry in found.keys)
    left_out = sum(entry.written is None for entry in found.keys)
    return SlurmExportOut(
        cluster=name,
        files=found.files,
        kept=kept,
        changed=len(found.keys) - kept - left_out,
        left_out=left_out,
        lost=[what for what, _ in found.lost],
    )


def _known_host(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"


async def apply_document(state: AppState, who: Principal, name: str, request: ApplyIn) -> OperationOut:
    """Queues an apply. Raises as planning.queue_apply."""
    operation = await planning.queue_apply(state, who, name, request)
    origin = request.document.origin
    source = {"commit": origin.commit, "repository": origin.url, "path": origin.path} if origin else {}
    await write_audit_line(state, who, "apply", name, operation=operation.id, confirmed=request.confirmed, **source)
    return operation_out(operation)


async def scale_cluster(state: AppState, who: Principal, name: str, request: ScaleGroupsIn) -> OperationOut:
    """Queues a change of the number of nodes. Raises as planning.queue_apply."""
    operation = await planning.queue_scale(state, who, name, request)
    await write_audit_line(
        state, who, "scale", name, operation=operation.id, groups=request.groups, deadline_s=request.deadline_s
    )
    return operation_out(operation)


async def take_down(state: AppState, who: Principal, name: str, *, delete_data: bool) -> OperationOut:
    """Queues taking the cluster down. Raises SignInAgain if data would be deleted and the person's sign-in is old."""
    if delete_data:
        who.require_recent_sign_in(state.clock(), f"delete the data of {name}")
    operation = await planning.queue_down(state, who, name, delete_data=delete_data)
    await write_audit_line(state, who, "down", name, operation=operation.id, delete_data=delete_data)
    return operation_out(operation)
