"""What-ifs: the queue of a cluster replayed through slurmctld with more nodes, other caps or another policy."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.operation_kinds import WhatIfParams
from headway.errors import NotFound, Refused
from headway.schemas.clusters import Document
from headway.schemas.operations import OperationOut
from headway.schemas.whatif import WhatIfIn, WhatIfOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation

# Top-level fields of the cluster file that slurmctld decides by. Others would change nothing in a replay, or hold secrets.
POLICY_FIELDS = ("fabric", "groups", "nodes", "partitions", "plan", "qos", "slurm", "spares", "teams", "users")


async def start_whatif(state: AppState, who: Principal, name: str, request: WhatIfIn) -> OperationOut:
    """Queues a what-if. Raises Refused, NotFound and InvalidSpec for changes that the cluster file has no place for, so that
    they are known before anything is replayed."""
    params = WhatIfParams(
        nodes=request.nodes, caps=request.caps, policy=request.policy, since=request.since, until=request.until
    )
    await changed_cluster(state, name, params)
    operation = await queue_operation(state, name, who.person, params, key=who.idempotency_key)
    await write_audit_line(
        state, who, "whatif", name, operation=operation.id, nodes=" ".join(request.nodes), caps=" ".join(request.caps)
    )
    return operation_out(operation)


async def changed_cluster(state: AppState, name: str, params: WhatIfParams) -> tuple[Cluster, Cluster | None]:
    """Returns the cluster, and the cluster with the changes (None without changes). Raises as `start_whatif`."""
    from headway.whatif.changes import Changes, changed_file

    other = sorted(set(params.policy) - set(POLICY_FIELDS))
    if other:
        raise Refused(
            f"policy: {other[0]} can't be changed in a what-if", hint=f"fields are {', '.join(POLICY_FIELDS)}"
        )
    row, cluster = await state.clusters.get(name)
    changes = Changes(tuple(params.nodes), tuple(params.caps), params.policy)
    if not changes:
        return cluster, None
    document = Document.model_validate(row.document)
    spec = changed_file(document.spec, cluster, changes)
    changed = (await state.clusters.resolve(document.model_copy(update={"spec": spec}))).cluster
    return cluster, changed


def changes_in_words(params: WhatIfParams) -> list[str]:
    """Returns the changes as a person would say them; [] without changes."""
    from headway.whatif.changes import Changes

    return Changes(tuple(params.nodes), tuple(params.caps), params.policy).in_words


async def list_whatifs(state: AppState, name: str) -> list[WhatIfOut]:
    """Returns the results of the cluster, the newest first, without the starts of jobs."""
    await state.clusters.row(name)
    found = [WhatIfOut.model_validate(one) for one in await state.store.whatifs.latest(name)]
    return [one.model_copy(update={"starts": {}}) for one in found]


async def get_whatif(state: AppState, name: str, operation: str) -> WhatIfOut:
    """Returns the result of an operation. Raises NotFound if it has none, or no longer."""
    await state.clusters.row(name)
    found = await state.store.whatifs.get(name, operation)
    if found is None:
        raise NotFound(f"{name} has no result of a what-if {operation!r}", hint=f"headway whatif {name} makes one")
    return WhatIfOut.model_validate(found)
