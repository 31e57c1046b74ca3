"""plan, apply and down: from a document to a row in the queue. Nothing here changes a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.changes.slurm_upgrade_path import backup_before_upgrade, upgrade_fault
from headway.changes.unrendered_settings import file_change, setting_changes
from headway.clusterfile.node_counts import scaled, scaled_text, targets_of
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.errors import Conflict, Fault, InvalidSpec, NeedsConfirmation, NotAllowed, Refused
from headway.schemas.clusters import ApplyIn, ChangeSetOut, Document, ScaleIn
from headway.services.cluster.cost_guard import FIELD, over_limit
from headway.services.cluster.path_policy import moved_datasets, place_faults
from headway.services.cluster_backend import Resolved
from headway.services.context import AppState, PlanKept, fingerprint
from headway.services.identity import Principal, Right
from headway.services.mappers import changeset_out, operation_news, summary_of
from headway.store import Operation

PLAN_KEPT_S = 15.0


async def plan(state: AppState, who: Principal, document: Document) -> ChangeSetOut:
    document, resolved = await accept(state, who, document)
    changes = await _changes(state, resolved.cluster)
    kept = state.plans[resolved.cluster.name] = _kept(state, document, changes)
    notes = [Fault("", note, level="warning") for note in changes.notes]
    if over := await over_limit(state, await _before(state, resolved.cluster.name), resolved.cluster):
        notes.append(Fault(FIELD, f"apply would stop: {over.message}", over.hint, level="warning"))
    return changeset_out(changes, resolved.cluster, kept.digest, (*resolved.warnings, *notes))


async def look(state: AppState, who: Principal, document: Document) -> tuple[Cluster | None, list[Fault]]:
    """Every fault and warning of a document as `plan` would say them, and the cluster when none is an error. Reaches no
    machine."""
    try:
        _, resolved = await accept(state, who, document)
    except InvalidSpec as error:
        return None, list(error.faults)
    except (NotAllowed, Refused) as error:
        return None, [Fault("", error.message, error.hint)]
    return resolved.cluster, list(resolved.warnings)


async def apply(state: AppState, who: Principal, name: str, ask: ApplyIn) -> Operation:
    """Queues the apply. Raises Conflict when the plan is not the one that was shown, NeedsConfirmation when it disturbs
    something nobody agreed to."""
    document, resolved = await accept(state, who, ask.document)
    cluster = resolved.cluster
    if cluster.name != name:
        raise Refused(f"the file is of cluster {cluster.name!r}, the request of {name!r}")
    waits = await state.store.operations.active(name) is not None
    if not waits or ask.digest:
        await _agreed(state, document, resolved, ask)
    stored = document.model_dump()
    if await state.store.clusters.get(name) is None:
        await state.store.clusters.save(name, stored, summary=summary_of(cluster), owner=document.owner)
    # One that waits behind another can only be looked at when its turn has come.
    params = {
        "confirmed": ask.confirmed,
        "look_again": waits and not ask.confirmed,
        "deadline_s": ask.deadline_s,
    }
    operation = await state.store.operations.enqueue(
        name, "apply", who.person, document=stored, params=params, key=who.idempotency_key
    )
    queued(state, operation)
    return operation


async def plan_scale(state: AppState, who: Principal, name: str, ask: ScaleIn) -> ChangeSetOut:
    _, document = await _scaled(state, name, ask)
    return await plan(state, who, document)


async def scale(state: AppState, who: Principal, name: str, ask: ScaleIn) -> Operation:
    """Queues another number of nodes. Who comes second finds what the first one left: a group that is not named keeps
    the number it has by then. Raises as `apply`."""
    targets, document = await _scaled(state, name, ask)
    document, resolved = await accept(state, who, document)
    waits = await state.store.operations.active(name) is not None
    if not waits or ask.digest:
        await _agreed(state, document, resolved, ask)
    params = {
        "confirmed": ask.confirmed,
        "look_again": waits and not ask.confirmed,
        "scale": targets,
        "deadline_s": ask.deadline_s,
    }
    operation = await state.store.operations.enqueue(
        name, "scale", who.person, document=document.model_dump(), params=params, key=who.idempotency_key
    )
    queued(state, operation)
    return operation


async def _scaled(state: AppState, name: str, ask: ScaleIn) -> tuple[dict[str, int], Document]:
    row, cluster = await state.cluster(name)
    targets = targets_of(cluster, ask.groups)
    document = scaled_document(Document.model_validate(row.document), targets)
    return targets, document.model_copy(update={"owner": ""})  # who it belongs to stays


def scaled_document(document: Document, targets: Mapping[str, int]) -> Document:
    """The document with so many nodes in these groups."""
    spec = scaled(document.spec, targets)
    return document.model_copy(update={"spec": spec, "text": scaled_text(document.text, document.spec, spec)})


async def down(state: AppState, who: Principal, name: str, *, delete_data: bool) -> Operation:
    row = await state.row(name)
    operation = await state.store.operations.enqueue(
        name, "down", who.person, document=row.document, params={"delete_data": delete_data}, key=who.idempotency_key
    )
    queued(state, operation)
    return operation


async def accept(state: AppState, who: Principal, document: Document) -> tuple[Document, Resolved]:
    """The document with its owner filled in, and resolved. Raises InvalidSpec with every fault."""
    name = document.spec.get("name")
    row = await state.store.clusters.get(name) if isinstance(name, str) else None
    owner = document.owner or (row.owner if row else "") or who.user
    if document.owner not in ("", who.user):
        who.require(Right.ADMIN, f"apply in the name of {owner}")
    document = document.model_copy(update={"owner": owner})
    resolved = await state.resolve(document)
    before = await state.resolved(row) if row else None
    if not who.may(Right.ADMIN):
        _need_known_places(who, resolved.cluster, before)
    hop = upgrade_fault(state.slurm_written(resolved.cluster, before), resolved.cluster, exists=before is not None)
    faults = [*await place_faults(state, resolved), *([hop] if hop else [])]
    if before is not None and row is not None and row.state == "ready":
        faults += moved_datasets(before, resolved.cluster)
    if faults:
        raise InvalidSpec(faults)
    return document, resolved


def _need_known_places(who: Principal, cluster: Cluster, known: Cluster | None) -> None:
    """Planning makes the server connect to machines and look at folders of its own: which ones is for admins to say."""
    if known is None:
        other = not cluster.provider.creates_machines or bool(cluster.hosts) or cluster.munge_key is not None
    else:
        machines = (known.provider, known.hosts, known.munge_key)
        other = (cluster.provider, cluster.hosts, cluster.munge_key) != machines
    folders = {dataset.source for dataset in known.storage.datasets} if known else set()
    own = (dataset.source for dataset in cluster.storage.datasets if not dataset.versioned)
    new = {source for source in own if source} - folders
    if other or new:
        what = "other machines, datasets or keys" if known else "machines, datasets or keys of the server's"
        raise NotAllowed(f"{who.person} may not plan {cluster.name} with {what}", hint="ask an admin")


def digest_of(changes: ChangeSet) -> str:
    """The same for two plans that would do the same."""
    rows: list[Any] = [[c.kind, c.where, c.what, c.why, c.disturbs.value, list(c.diff)] for c in changes.changes]
    return hashlib.sha256(json.dumps([changes.cluster, rows]).encode()).hexdigest()[:32]


async def _agreed(state: AppState, document: Document, resolved: Resolved, ask: ApplyIn | ScaleIn) -> None:
    """Raises when the plan is another one than was shown, disturbs what nobody agreed to, or takes nodes from under jobs
    without a word on how long those may go on."""
    name = resolved.cluster.name
    now = await _plan_now(state, document, resolved)
    if ask.digest and ask.digest != now.digest:
        raise Conflict(f"the plan for {name} has changed since it was shown", hint="look at it again: headway plan")
    if over := await over_limit(state, await _before(state, name), resolved.cluster):
        raise over
    _need_confirmation(name, now.asks, ask.confirmed)
    if now.busy and ask.deadline_s is None:
        raise Conflict(
            f"nodes with running jobs would go: {now.busy}",
            hint="say how long those jobs may go on before they are requeued: --deadline 10 (minutes)",
        )


async def _plan_now(state: AppState, document: Document, resolved: Resolved) -> PlanKept:
    """The plan that was shown a moment ago, or a new one."""
    name = resolved.cluster.name
    kept = state.plans.pop(name, None)
    young = kept is not None and state.clock() - kept.at < PLAN_KEPT_S
    if kept is not None and young and kept.document == fingerprint(document.model_dump()):
        return kept
    return _kept(state, document, await _changes(state, resolved.cluster))


def _kept(state: AppState, document: Document, changes: ChangeSet) -> PlanKept:
    goes = ("machine.delete", "machine.create")  # a machine one owns is taken in another's place
    busy = ", ".join(c.where for c in changes.changes if c.kind in goes and c.data.get("jobs"))
    key = fingerprint(document.model_dump())
    return PlanKept(key, digest_of(changes), len(changes.asks), state.clock(), busy)


async def _changes(state: AppState, cluster: Cluster) -> ChangeSet:
    """What changes on machines, and what the server itself goes by from then on."""
    changes, before = await state.work.plan(cluster), await _before(state, cluster.name)
    first = backup_before_upgrade(state.slurm_written(cluster, before), before, cluster)
    told = (*first, *changes.changes, *setting_changes(before, cluster)) or file_change(before, cluster)
    return replace(changes, changes=told)


async def _before(state: AppState, name: str) -> Cluster | None:
    """As its file says now."""
    row = await state.store.clusters.get(name)
    return await state.resolved(row) if row else None


def _need_confirmation(name: str, asks: int, confirmed: bool) -> None:
    if asks and not confirmed:
        what = "1 change disturbs" if asks == 1 else f"{asks} changes disturb"
        raise NeedsConfirmation(f"{what} what runs on {name}", hint="look at `headway plan`, then apply with --yes")


def queued(state: AppState, operation: Operation) -> None:
    """Tells those who wait for it that there is one more."""
    name = operation.cluster
    state.live.tell(operation_news(operation, "queued", state.clock()))
    state.plans.pop(name, None)
    state.wake.set()
    state.live.touch(name)
