"""Notes of a plan about machines that would be rented."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS
from headway.changes.checks.rented_machines import WantedMachines, later_notes, rental_notes
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Quota
from tests.support.clusters import builders

CLUSTER = builders.cluster(name="lab", nodes=2, spares=0, plan=load_catalogue()["cpu-64"], provider=AWS)
BIG = Offer("aws", "m7i.16xlarge", "", 0, Decimal("3.20"), "https://example.org", date(2026, 11, 1), zone="a", cpus=64)
OLD = replace(BIG, instance_type="m5.16xlarge", zone="b")
NODES = WantedMachines(("lab-1-1", "lab-1-2"), (BIG, OLD), None)


def notes(*wanted: WantedMachines, rented: str = "0", limit: str | None = None) -> list[str]:
    cluster = replace(CLUSTER, max_usd_per_hour=None if limit is None else Decimal(limit))
    return list(rental_notes(cluster, wanted, {"lab-head": Decimal(rented)}))


def test_first_offer_its_price_and_what_else_is_tried() -> None:
    assert notes(NODES) == [
        "lab-1-[1-2]: 2 x m7i.16xlarge in a, on-demand, 3.20 USD an hour each (price of 2026-11-01); if it can't be had: "
        "m5.16xlarge in b",
        "what apply rents costs 6.40 USD an hour, without disks, addresses and traffic",
    ]
    assert notes() == []


def test_price_that_the_cloud_does_not_say_is_that_of_the_plan() -> None:
    unknown = replace(BIG, price_usd_per_node_hour=Decimal(0), purchase=PurchaseOption.SPOT)
    said = notes(replace(NODES, offers=(unknown,)), WantedMachines(("lab-head",), (unknown,), None))
    assert said[0] == (
        "lab-1-[1-2]: 2 x m7i.16xlarge in a, spot, 2.56 USD an hour each (price of the plan: the cloud does not say one); "
        "nothing else would be tried"
    )
    assert said[1].startswith("lab-head: 1 x m7i.16xlarge in a, spot, at a price that the cloud does not say")
    assert said[2].startswith("what apply rents costs at least 5.12 USD an hour")


def test_cost_limit_counts_what_is_rented_already() -> None:
    assert not [note for note in notes(NODES, rented="0.60", limit="7") if "stop" in note]
    assert notes(NODES, rented="0.61", limit="7")[-1].startswith(
        "apply would stop: everything together would cost 7.01 USD an hour at least, and cost.usd_per_hour is 7"
    )


def test_apply_goes_on_with_cheaper_offers_where_the_first_ones_exceed_the_cost_limit() -> None:
    cheaper = replace(NODES, offers=(BIG, replace(OLD, price_usd_per_node_hour=Decimal("3.10"))))
    assert notes(cheaper, rented="0.61", limit="7")[-1] == (
        "with these offers everything together would cost 7.01 USD an hour, and cost.usd_per_hour is 7: apply passes over an "
        "offer that exceeds it and tries the next one"
    )


def test_machine_that_is_gone_counts_once_for_the_cost_limit() -> None:
    """Its try has not ended until the apply finds out, and the apply rents another one."""
    cluster = replace(CLUSTER, max_usd_per_hour=Decimal("6.40"))
    rented = {"lab-1-1": Decimal("3.20"), "lab-1-2": Decimal("3.20")}
    two = replace(NODES, names=("lab-1-2",))
    assert not [note for note in rental_notes(cluster, [two], rented) if "stop" in note]


def test_quota_is_compared_with_all_that_it_holds_for() -> None:
    quota = Quota("Running On-Demand Standard instances", 195, 64)
    head = WantedMachines(("lab-head",), (replace(BIG, cpus=4),), quota)
    assert not [note for note in notes(replace(NODES, quota=quota)) if "quota" in note]
    assert notes(replace(NODES, quota=quota), head)[-1] == (
        "can't be had: the quota Running On-Demand Standard instances is 195 vCPUs, 64 are used and 132 more are needed; "
        "ask the cloud for a higher quota, or rent less"
    )


def test_machines_that_are_rented_when_jobs_wait_are_named_with_their_price() -> None:
    assert list(later_notes(CLUSTER, [NODES])) == [
        "when jobs wait, lab-1-[1-2]: up to 2 x m7i.16xlarge in a, on-demand, 3.20 USD an hour each (price of 2026-11-01); if "
        "it can't be had: m5.16xlarge in b"
    ]


def test_queue_time_and_price_limit_of_a_group_are_part_of_the_note() -> None:
    group = replace(CLUSTER.groups[0], queue_time_s=900, max_usd_per_hour=Decimal(10))
    (note,) = later_notes(replace(CLUSTER, groups=(group,)), [NODES])
    assert note.startswith("when a job has waited 15 min, lab-1-[1-2]: up to 2 x m7i.16xlarge in a")
    assert "(price of 2026-11-01); at most 10 USD an hour together; if it can't be had: m5.16xlarge in b" in note
