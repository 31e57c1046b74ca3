"""The server records from when until when each machine exists or is a spare."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import SPARES
from headway.services.app_state import AppState
from tests.support.billing.billing_cluster import OCTOBER, H, accounting, at, server
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_meters_machine_lifetimes_and_spare_spans(server: Server) -> None:
    from headway.services.billing.ledger.machine_meter import MachineMeter

    cluster = (await server.state.clusters.get("lab"))[1]
    state: AppState = server.state
    meter = MachineMeter()

    async def look(moment: int, *names: str) -> None:
        at(server, moment)
        nodes = [replace(builders.node(name), reservation=SPARES if name == "lab-1-2" else "") for name in names]
        state.live.store_snapshot(replace(state.live.snapshot("lab"), nodes=tuple(nodes)))
        await meter.record_machines(state, cluster, [builders.machine(name) for name in (*names, "lab-head")])

    await look(0, "lab-1-1", "lab-1-2")
    for moment in range(2, 100, 2):
        await look(moment, "lab-1-1", "lab-1-2")
    await look(100, "lab-1-1")
    lives = await server.store.machine_lifetimes.between("lab", OCTOBER.start, OCTOBER.end)
    assert [(life.machine, life.began - OCTOBER.start, life.ended and life.ended - OCTOBER.start) for life in lives] == [
        ("lab-1-1", 0, 0), ("lab-1-2", 0, 98),
    ]  # fmt: skip
    [spare] = await server.store.node_spans.between("lab", OCTOBER.start, OCTOBER.end)
    assert (spare.node, spare.ended - OCTOBER.start) == ("lab-1-2", 100)


async def test_machine_of_a_removed_slot_is_metered_until_it_is_gone(server: Server) -> None:
    """A scale waits for the jobs that run there; where the slot is another group's it is another machine."""
    from headway.services.billing.ledger.machine_meter import MachineMeter

    cluster = (await server.state.clusters.get("lab"))[1]
    main, meter = cluster.groups[0], MachineMeter()
    four = replace(
        cluster, groups=(replace(main, slots=("lab-1-1", "lab-1-2")), replace(main, name="old", slots=("x",)))
    )
    two = replace(cluster, groups=(replace(main, slots=("lab-1-1",)), replace(main, name="new", slots=("lab-1-2",))))

    async def look(moment: int, cluster: Cluster, *names: str) -> None:
        at(server, moment)
        await meter.record_machines(server.state, cluster, [builders.machine(name) for name in (*names, "lab-head")])

    for moment, seen in ((0, four), (H, four), (2 * H, two), (3 * H, two)):
        await look(moment, seen, "lab-1-1", "lab-1-2", "x")
    await look(4 * H, two, "lab-1-1", "lab-1-2")
    lives = await server.store.machine_lifetimes.between("lab", OCTOBER.start, OCTOBER.end)
    hours = [
        (life.machine, life.group, (life.began - OCTOBER.start) / H, life.ended and (life.ended - OCTOBER.start) / H)
        for life in lives
    ]
    assert sorted(hours) == [
        ("lab-1-1", "main", 0, 0), ("lab-1-2", "main", 0, 1), ("lab-1-2", "new", 2, 0), ("x", "old", 0, 3),
    ]  # fmt: skip
