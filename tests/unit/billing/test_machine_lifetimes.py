"""Lifetimes of machines."""

from __future__ import annotations

from headway.billing import machine_lifetimes
from headway.domain.billing.ledger import MachineLifetime


def test_machine_lifetime_starts_on_arrival_and_ends_when_last_seen() -> None:
    first = machine_lifetimes.diff_machines([], {"lab-1-1": "main"}, 100)
    assert first.began == (("lab-1-1", "main"),)
    known = [MachineLifetime("lab-1-1", "main", 100, 0, 400)]
    assert machine_lifetimes.diff_machines(known, {"lab-1-1": "main"}, 500) == machine_lifetimes.MachineDiff(
        there=("lab-1-1",)
    )
    gone = machine_lifetimes.diff_machines(known, {}, 9000)  # the server was away: its end is unknown
    assert [(one.machine, one.began, one.ended) for one in gone.ended] == [("lab-1-1", 100, 400)]


def test_clock_set_back_bills_no_second_twice() -> None:
    known = [MachineLifetime("lab-1-1", "main", 100, 0, 4000)]
    assert machine_lifetimes.diff_machines(known, {}, 3000) == machine_lifetimes.MachineDiff()
    assert machine_lifetimes.diff_machines(known, {"lab-1-2": "main"}, 3999) == machine_lifetimes.MachineDiff()
    assert machine_lifetimes.diff_machines(known, {}, 4000).ended[0].ended == 4000


def test_slot_moved_to_another_group_starts_new_lifetime() -> None:
    turns = machine_lifetimes.diff_machines([MachineLifetime("lab-1-1", "main", 100, 0, 400)], {"lab-1-1": "gpu"}, 500)
    assert (turns.began, turns.ended[0].ended, turns.there) == ((("lab-1-1", "gpu"),), 400, ())


def test_spare_span_lasts_while_node_is_spare() -> None:
    begun = machine_lifetimes.diff_spares([], ["lab-1-5"], 100)
    assert [(one.node, one.began) for one in begun.began] == [("lab-1-5", 100)]
    ended = machine_lifetimes.diff_spares(begun.began, ["lab-1-4"], 200)
    assert [(one.node, one.ended) for one in ended.ended] == [("lab-1-5", 200)]
    assert machine_lifetimes.diff_spares(begun.began, [], 50) == machine_lifetimes.States()
