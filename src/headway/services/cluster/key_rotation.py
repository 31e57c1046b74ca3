"""Key rotation: requests check their input and queue an operation."""

from __future__ import annotations

import secrets as random

from headway.domain.access.cluster_key import ClusterKey
from headway.domain.operation_kinds import RotateParams
from headway.errors import Refused
from headway.schemas.key_rotation import RotateIn
from headway.schemas.operations import OperationOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation


async def start_key_rotation(state: AppState, who: Principal, name: str, request: RotateIn) -> OperationOut:
    """Queues the replacement of a key by a new one. No job is lost. Raises Refused for keys that Headway does not own,
    and SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"replace a key of {name}")
    _, cluster = await state.clusters.get(name)
    if request.what is ClusterKey.DATABASE:
        raise Refused(
            f"the database of {name} has no password: it identifies slurmdbd by its system user on a local socket",
            hint="headway keys rotate munge, jwt or ssh",
        )
    if request.what is ClusterKey.MUNGE and cluster.munge_key is not None:
        raise Refused(
            f"the MUNGE key of {name} comes from {cluster.munge_key.description}, as its file says",
            hint="change it there, then run headway apply",
        )
    if request.what is ClusterKey.SSH and not cluster.provider.boots_node_images:
        raise Refused(f"{name} is reached with your own SSH keys", hint="change them on the machines and in hosts")
    params = RotateParams(request.what, random.token_hex(8))
    operation = await queue_operation(state, name, who.person, params, key=who.idempotency_key)
    await write_audit_line(state, who, "keys.rotate", name, operation=operation.id, what=request.what)
    return operation_out(operation)
