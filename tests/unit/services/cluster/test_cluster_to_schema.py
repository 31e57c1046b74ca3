"""Lists of clusters show machines and costs correctly."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.catalog.providers import AWS
from headway.domain.cluster import Cluster, Group
from headway.schemas.clusters import ClusterOut
from headway.services.cluster.cluster_to_schema import cluster_out, summary_of
from headway.services.read_model.snapshot import Snapshot
from headway.store import ClusterRow
from tests.support.clusters import builders


def out(cluster: Cluster, *machines: str) -> ClusterOut:
    there = tuple(builders.machine(name) for name in machines)
    return cluster_out(ClusterRow("lab", {}, summary_of(cluster), "ready", "ann", 0.0), Snapshot("lab", machines=there))


def test_machines_are_counted_in_group_of_their_name() -> None:
    one = builders.cluster(4, 0)
    assert [group.machines for group in out(one, "lab-head", "lab-head2", "lab-1-1", "lab-1-2").groups] == [2]
    [main] = one.groups
    names = ("main", "cpu", "cpu-1")
    several = replace(one, groups=tuple(replace(main, name=name) for name in names))
    there = ("lab-head", "lab-1-1", "lab-cpu-1-1", "lab-cpu-1-2", "lab-cpu-1-1-3")
    assert {group.name: group.machines for group in out(several, *there).groups} == {"main": 1, "cpu": 2, "cpu-1": 1}


def test_hourly_price_counts_wanted_or_existing_machines_per_group() -> None:
    """At 31.20: of what a file wants and what is there the greater, group by group."""
    price = builders.H100.price_usd_per_node_hour
    own = Group("own", builders.H100, 3, 6, spares=1, price_usd_per_node_hour=price)
    jobs = Group("jobs", builders.H100, 1, 4, idle_s=60, price_usd_per_node_hour=price)
    cluster = replace(builders.cluster(10, 0), groups=(own, jobs))
    for own_there, jobs_there, expected in ((0, 0, "156.00"), (4, 1, "156.00"), (2, 4, "249.60"), (5, 0, "187.20")):
        there = [f"lab-own-1-{i}" for i in range(own_there)] + [f"lab-jobs-1-{i}" for i in range(jobs_there)]
        assert out(cluster, "lab-head", *there).price_usd_per_hour == expected


def test_rented_machines_have_no_price_of_the_file() -> None:
    rented = out(builders.cluster(2, 0, provider=AWS), "lab-head", "lab-1-1", "lab-1-2")
    assert (rented.price_usd_per_hour, rented.groups[0].price_usd_per_node_hour) == ("", "")
    whole = builders.cluster(2, 0)
    burst = Group("burst", builders.H100, 0, 4, idle_s=60, provider=AWS, price_usd_per_node_hour=Decimal(9))
    mixed = out(replace(whole, groups=(*whole.groups, burst)), "lab-head", "lab-burst-1-1")
    assert mixed.price_usd_per_hour == ""
    assert [group.price_usd_per_node_hour for group in mixed.groups] == ["31.20", ""]
