"""Replaces a key while jobs run.

MUNGE and JWT keys are files like others: an apply copies the new one to every machine and restarts the daemons that
read it. The new MUNGE key is first stored next to the old one on all machines, and only then replaces it
(cluster/keys/munge_key.py). munged is restarted everywhere within seconds; slurmd and slurmctld keep running and retry
messages that fail in between. For the SSH key that Headway signs in with, machines accept both keys before the old one
is removed."""

from __future__ import annotations

import asyncio
import base64
import secrets as random
from collections.abc import Awaitable, Callable, Iterable

from headway.cluster.apply import apply_cluster, plan_changes
from headway.cluster.context import ClusterContext
from headway.cluster.keys import secrets
from headway.domain.access.cluster_key import ClusterKey
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.operation_kinds import OperationKind, own_secret
from headway.domain.operation_progress import ReportProgress
from headway.errors import Refused
from headway.providers.base import KeyRotatingProvider

READY_S = 30


async def rotate_key(
    cluster: Cluster,
    context: ClusterContext,
    report: ReportProgress,
    what: str,
    ref: str,
    begins: Callable[[], Awaitable[None]],
) -> None:
    """Replaces the key `what`: munge, jwt or ssh. `ref` names this rotation: after an interruption it continues
    with the same new key, which is a secret of the operation until it is in place. `begins` is called before the
    first change. Raises Refused, with nothing changed, where other changes wait that need a confirmation, or a
    machine can't take the MUNGE key. Raises HeadwayError naming the machines that do not have the key yet: for
    munge and jwt the next apply copies it there; for ssh the old key stays and the new one is removed everywhere."""
    if what == ClusterKey.SSH:
        await _sign_in_key(cluster, context, report, ref, begins)
        return
    name = f"{what}_key"
    fresh = base64.b64encode(random.token_bytes(secrets.FILE_SECRETS[name])).decode()
    fresh = await context.store.secrets.put_if_absent(cluster.name, _new(ref), fresh)
    # Otherwise this continues an interrupted rotation.
    if (await context.store.secrets.of_cluster(cluster.name)).get(name) != fresh:
        await _nothing_else_asks(cluster, context)
    await begins()
    await report("key", f"a new {what} key is being installed on all machines")
    await apply_cluster(cluster, context, report, new={name: fresh})
    await report("key", f"every machine has the new {what} key", done=True)


async def _nothing_else_asks(cluster: Cluster, context: ClusterContext) -> None:
    """Raises Refused when other changes need a confirmation: the apply would carry them out too."""
    asks = (await plan_changes(cluster, context)).disturbing_changes
    if asks:
        first = asks[0]
        more = f", and {len(asks) - 1} more" if len(asks) > 1 else ""
        raise Refused(
            f"{cluster.name} has other disturbing changes: {first.where}: {first.kind}, {first.why}{more}",
            hint="run headway plan and headway apply, then try again",
        )


async def _sign_in_key(
    cluster: Cluster, context: ClusterContext, report: ReportProgress, ref: str, begins: Callable[[], Awaitable[None]]
) -> None:
    """Replaces the SSH key. The provider also changes it on machines that are powered off, because they come back
    later."""
    provider = context.provider
    if not isinstance(provider, KeyRotatingProvider):
        raise Refused(f"{cluster.name} is reached with your own SSH keys", hint="change them on the machines")
    await begins()
    old = (await context.store.secrets.of_cluster(cluster.name))["bootstrap_key"]
    new = await context.store.secrets.put_if_absent(cluster.name, _new(ref), secrets.new_key())
    machines = tuple((await context.machines(cluster.name)).values())
    try:
        await _admit(provider, machines, new, *([old] if old != new else []))
        await report("key", "the new key is accepted in addition to the old one", done=True)
        await _use(context, machines, new)
    except Exception:  # includes errors that a provider raises
        await _admit(provider, machines, old)
        await _use(context, (), old)
        raise
    await context.store.secrets.set(cluster.name, "bootstrap_key", new)
    await _admit(provider, machines, new)
    await report("key", "no machine accepts the old key now", done=True)


async def _admit(provider: KeyRotatingProvider, machines: Iterable[Machine], *keys: str) -> None:
    """Sets the keys that each machine accepts."""
    for machine in machines:
        await provider.admit(machine, "\n".join(secrets.public_key(key) for key in keys))


async def _use(context: ClusterContext, machines: Iterable[Machine], key: str) -> None:
    """Signs in with the key from now on, at once on the given machines that run. Raises Unreachable."""
    context.connections.use_key(key)
    running = [machine for machine in machines if machine.state is MachineState.RUNNING]
    for machine in running:
        await context.connections.drop(machine.name)
    await asyncio.gather(*(context.connections.wait_ready(machine, timeout_s=READY_S) for machine in running))


def _new(ref: str) -> str:
    """Returns the name under which the operation stores its new key."""
    return own_secret(OperationKind.ROTATE, {"ref": ref})
