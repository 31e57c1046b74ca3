"""Plan, apply, scale and down: from a document to a ChangeSet or a queued operation. Nothing here changes a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headway.changes.setting_changes import file_change, setting_changes
from headway.clusterfile.node_counts import edit_node_counts, target_node_counts, with_node_counts
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.operation_kinds import ApplyParams, DownParams, ScaleParams
from headway.errors import Fault, InvalidSpec, NotAllowed, Refused
from headway.rollout.slurm_upgrade_rules import backup_before_upgrade, upgrade_fault
from headway.schemas.clusters import ApplyIn, ChangeSetOut, Document, ScaleGroupsIn
from headway.services.access.concurrency_limits import plan_slot
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.cluster.apply_guards import (
    COST_LIMIT_FIELD,
    cost_limit_conflict,
    require_confirmation,
    require_known_resources,
    require_shown_plan,
    unended_rental_faults,
)
from headway.services.cluster.changeset_to_schema import changeset_out
from headway.services.cluster.cluster_to_schema import summary_of
from headway.services.cluster.operations import queue_operation
from headway.services.cluster.shown_plan import ShownPlan, document_digest, plan_digest
from headway.services.cluster_backend import ResolvedCluster
from headway.services.storage.path_policy import moved_dataset_faults, path_faults
from headway.store import Operation

PLAN_MAX_AGE_S = 15.0


async def plan_document(state: AppState, who: Principal, document: Document) -> ChangeSetOut:
    """Returns what applying the document would change, and its digest. Raises InvalidSpec with all faults."""
    with plan_slot(state, who):
        document, resolved = await resolve_document(state, who, document)
        changes = await _compute_changes(state, resolved.cluster)
    kept = state.plans[resolved.cluster.name] = _stored_plan(state, document, changes)
    notes = [Fault("", note, level="warning") for note in changes.notes]
    if over := await cost_limit_conflict(state, await _applied_cluster(state, resolved.cluster.name), resolved.cluster):
        notes.append(Fault(COST_LIMIT_FIELD, f"apply would stop: {over.message}", over.hint, level="warning"))
    return changeset_out(changes, resolved.cluster, kept.digest, (*resolved.warnings, *notes))


async def check_document(state: AppState, who: Principal, document: Document) -> tuple[Cluster | None, list[Fault]]:
    """Returns (the cluster if the document has no errors, all its faults and warnings), without contacting a machine."""
    try:
        with plan_slot(state, who):
            _, resolved = await resolve_document(state, who, document)
    except InvalidSpec as error:
        return None, list(error.faults)
    except (NotAllowed, Refused) as error:
        return None, [Fault("", error.message, error.hint)]
    return resolved.cluster, list(resolved.warnings)


async def queue_apply(state: AppState, who: Principal, name: str, request: ApplyIn) -> Operation:
    """Queues the apply. Raises Conflict if the plan differs from the one that was shown, NeedsConfirmation if it
    disturbs running work and `request.confirmed` is false."""
    document, resolved = await resolve_document(state, who, request.document)
    cluster = resolved.cluster
    if cluster.name != name:
        raise Refused(f"the file is of cluster {cluster.name!r}, the request of {name!r}")
    waits = await state.store.operations.active(name) is not None
    if not waits or request.digest:
        await _require_acceptable_plan(state, document, resolved, request)
    stored = document.model_dump()
    if await state.store.clusters.get(name) is None:
        await state.store.clusters.save(name, stored, summary=summary_of(cluster), owner=document.owner)
    # An apply queued behind another operation can only be planned when its turn comes.
    params = ApplyParams(request.confirmed, look_again=waits and not request.confirmed, deadline_s=request.deadline_s)
    return await queue_operation(state, name, who.person, params, document=stored, key=who.idempotency_key)


async def plan_scale(state: AppState, who: Principal, name: str, request: ScaleGroupsIn) -> ChangeSetOut:
    """Returns what another number of nodes would change."""
    _, document = await _scaled(state, name, request)
    return await plan_document(state, who, document)


async def queue_scale(state: AppState, who: Principal, name: str, request: ScaleGroupsIn) -> Operation:
    """Queues a change of the number of nodes. Groups that are not named keep the number that they have when the
    operation runs. Raises as `queue_apply`."""
    targets, document = await _scaled(state, name, request)
    document, resolved = await resolve_document(state, who, document)
    waits = await state.store.operations.active(name) is not None
    if not waits or request.digest:
        await _require_acceptable_plan(state, document, resolved, request)
    params = ScaleParams(
        request.confirmed, look_again=waits and not request.confirmed, deadline_s=request.deadline_s, scale=targets
    )
    return await queue_operation(
        state, name, who.person, params, document=document.model_dump(), key=who.idempotency_key
    )


async def _scaled(state: AppState, name: str, request: ScaleGroupsIn) -> tuple[dict[str, int], Document]:
    row, cluster = await state.clusters.get(name)
    targets = target_node_counts(cluster, request.groups)
    document = scaled_document(Document.model_validate(row.document), targets)
    return targets, document.model_copy(update={"owner": ""})  # "" keeps the owner


def scaled_document(document: Document, targets: Mapping[str, int]) -> Document:
    """Returns the document with these numbers of nodes, by group, in its spec and text."""
    spec = with_node_counts(document.spec, targets)
    text = edit_node_counts(document.text, document.spec, spec)
    origin = document.origin
    if origin is not None and spec != document.spec:
        origin = origin.model_copy(update={"scaled": True})
    return document.model_copy(update={"spec": spec, "text": text, "origin": origin})


async def queue_down(state: AppState, who: Principal, name: str, *, delete_data: bool) -> Operation:
    """Queues taking the cluster down. Raises NotFound, and Refused where data that is to be kept would be deleted."""
    row = await state.clusters.row(name)
    cluster = await state.clusters.resolved(row)
    if cluster.provider.rents_machines and not delete_data:
        raise Refused(
            f"home, scratch and accounting of {name} are on the disks of rented machines, which go with the machines",
            hint=f"headway backup {name} --to FOLDER, then headway down {name} --delete-data",
        )
    params = DownParams(delete_data)
    return await queue_operation(state, name, who.person, params, document=row.document, key=who.idempotency_key)


async def resolve_document(state: AppState, who: Principal, document: Document) -> tuple[Document, ResolvedCluster]:
    """Returns the document with its owner filled in, and the resolved cluster. Raises InvalidSpec with every fault, and
    NotAllowed."""
    name = document.spec.get("name")
    row = await state.store.clusters.get(name) if isinstance(name, str) else None
    owner = document.owner or (row.owner if row else "") or who.user
    if document.owner not in ("", who.user):
        who.require(Right.ADMIN, f"apply in the name of {owner}")
    document = document.model_copy(update={"owner": owner})
    resolved = await state.clusters.resolve(document)
    before = await state.clusters.resolved(row) if row else None
    if not who.may(Right.ADMIN):
        require_known_resources(who, resolved.cluster, before)
    hop = upgrade_fault(
        state.clusters.stored_slurm_version(resolved.cluster, before), resolved.cluster, exists=before is not None
    )
    faults = [*await path_faults(state, resolved), *([hop] if hop else [])]
    faults += await unended_rental_faults(state, before, resolved.cluster)
    if before is not None and row is not None and row.state == "ready":
        faults += moved_dataset_faults(before, resolved.cluster)
    if faults:
        raise InvalidSpec(faults)
    return document, resolved


async def _require_acceptable_plan(
    state: AppState, document: Document, resolved: ResolvedCluster, request: ApplyIn | ScaleGroupsIn
) -> None:
    """Raises what `apply_guards` refuses: a plan that was not shown, costs too much, or disturbs running work."""
    name = resolved.cluster.name
    plan = await _shown_or_new_plan(state, document, resolved)
    require_shown_plan(name, plan, request)
    if over := await cost_limit_conflict(state, await _applied_cluster(state, name), resolved.cluster):
        raise over
    require_confirmation(name, plan, request)


async def _shown_or_new_plan(state: AppState, document: Document, resolved: ResolvedCluster) -> ShownPlan:
    """Returns the plan of this document that was shown within PLAN_MAX_AGE_S, or a new one."""
    name = resolved.cluster.name
    kept = state.plans.pop(name, None)
    young = kept is not None and state.clock() - kept.at < PLAN_MAX_AGE_S
    if kept is not None and young and kept.document == document_digest(document.model_dump()):
        return kept
    return _stored_plan(state, document, await _compute_changes(state, resolved.cluster))


def _stored_plan(state: AppState, document: Document, changes: ChangeSet) -> ShownPlan:
    # "create" is included because it replaces an inventory machine in a slot
    goes = ("machine.delete", "machine.create")
    busy = ", ".join(c.where for c in changes.changes if c.kind in goes and c.data.get("jobs"))
    key = document_digest(document.model_dump())
    return ShownPlan(key, plan_digest(changes), len(changes.disturbing_changes), state.clock(), busy)


async def _compute_changes(state: AppState, cluster: Cluster) -> ChangeSet:
    """Returns changes on machines, and changes of settings that only the server uses."""
    changes, before = await state.backend.lifecycle.plan(cluster), await _applied_cluster(state, cluster.name)
    first = backup_before_upgrade(state.clusters.stored_slurm_version(cluster, before), before, cluster)
    listed = (*first, *changes.changes, *setting_changes(before, cluster)) or file_change(before, cluster)
    return replace(changes, changes=listed)


async def _applied_cluster(state: AppState, name: str) -> Cluster | None:
    """Returns the cluster as last applied; None for a new one."""
    row = await state.store.clusters.get(name)
    return await state.clusters.resolved(row) if row else None
