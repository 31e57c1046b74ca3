"""Records from when until when each machine exists and is a spare: what invoices of machines are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.billing import machine_lifetimes
from headway.domain.billing.ledger import MachineLifetime
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import SPARES
from headway.services.app_state import AppState

MACHINE_SEEN_S = 30  # how often it is stored that a machine still exists


@dataclass
class MachineMeter:
    """Records when machines existed. Keeps the last sighting to the second and stores it twice a minute."""

    last_seen_at: dict[str, int] = field(default_factory=dict)  # cluster -> unix seconds

    async def record_machines(self, state: AppState, cluster: Cluster, machines: Sequence[Machine]) -> None:
        """Records the machines that the provider has just listed, and which nodes are spares."""
        now, store = int(state.clock()), state.store
        last = self.last_seen_at.get(cluster.name, 0)
        known = [
            MachineLifetime(life.machine, life.group, life.began, 0, max(life.seen, last))
            for life in await store.machine_lifetimes.running(cluster.name)
        ]
        of = {
            life.machine: life.group for life in known
        }  # a machine whose slot left the file counts until it is deleted
        of |= {name: group.name for name, group in cluster.group_of.items()}
        groups = {machine.name: of[machine.name] for machine in machines if machine.name in of}
        turns = machine_lifetimes.diff_machines(known, groups, now)
        self.last_seen_at[cluster.name] = max(now, last)
        stale = any(now - life.seen >= MACHINE_SEEN_S for life in await store.machine_lifetimes.running(cluster.name))
        if turns.began or turns.ended or (turns.there and stale):
            await store.machine_lifetimes.record(cluster.name, turns.began, turns.ended, turns.there, now)
        nodes = state.live.snapshot(cluster.name).nodes
        if nodes:
            standing_by = [node.name for node in nodes if node.reservation == SPARES and node.name in groups]
            states = machine_lifetimes.diff_spares(await store.node_spans.running(cluster.name), standing_by, now)
            await store.node_spans.save(cluster.name, [*states.began, *states.ended])
