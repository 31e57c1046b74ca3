"""Another key in a key's place while jobs run.

MUNGE and JWT keys are files like others: the new one is kept, and an apply carries it to every machine at once and restarts
what reads it. munged is restarted everywhere within seconds; slurmd and slurmctld go on, and what they say to each other in
between is said again. The key that Headway signs in with is let in beside the old one before that goes."""

from __future__ import annotations

import asyncio
import base64
import secrets as random

from headway.cluster import secrets
from headway.cluster.apply import apply
from headway.cluster.env import Env, Say
from headway.cluster.observe import machines_of
from headway.domain.cluster import Cluster
from headway.domain.machine import MachineState
from headway.errors import Refused
from headway.machines.base import Rekeys

_NEW = "rotating/"  # secrets that are to take another's place
READY_S = 30


async def rotate(cluster: Cluster, env: Env, say: Say, what: str, ref: str) -> None:
    """`what`: munge, jwt or ssh. `ref` names this rotation: one that was killed goes on with the same new key. Raises
    HeadwayError naming the machines that do not have it yet; an apply brings it to them."""
    if what == "ssh":
        await _sign_in_key(cluster, env, say, ref)
        return
    name = f"{what}_key"
    fresh = base64.b64encode(random.token_bytes(secrets.FILE_SECRETS[name])).decode()
    fresh = await env.store.put_secret(cluster.name, _NEW + ref, fresh)
    await env.store.set_secret(cluster.name, name, fresh)
    await say("key", f"a new {what} key goes to every machine")
    await apply(cluster, env, say)
    await env.store.drop_secret(cluster.name, _NEW + ref)
    await say("key", f"the new {what} key is everywhere", done=True)


async def _sign_in_key(cluster: Cluster, env: Env, say: Say, ref: str) -> None:
    provider = env.provider
    if not isinstance(provider, Rekeys):
        raise Refused(f"{cluster.name} is signed in to with keys of your own", hint="change them on the machines")
    old = (await env.store.secrets(cluster.name))["bootstrap_key"]
    new = await env.store.put_secret(cluster.name, _NEW + ref, secrets.new_key())
    machines = [m for m in (await machines_of(env, cluster.name)).values() if m.state is MachineState.RUNNING]
    both = f"{secrets.public_of(new)}\n{secrets.public_of(old)}"
    for machine in machines:
        await provider.admit(machine, both)
    await say("key", "the new key is let in beside the old one", done=True)
    env.connections.use_key(new)
    for machine in machines:
        await env.connections.drop(machine.name)
    await asyncio.gather(*(env.connections.wait_ready(machine, timeout_s=READY_S) for machine in machines))
    await env.store.set_secret(cluster.name, "bootstrap_key", new)
    for machine in machines:
        await provider.admit(machine, secrets.public_of(new))
    await env.store.drop_secret(cluster.name, _NEW + ref)
    await say("key", "the old key is let in nowhere any more", done=True)
