"""plan_scaling creates and deletes the right machines, and closes or reopens slots of elastic and spot groups within
the budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal

from headway.autoscale.planner import (
    NOT_REGISTERED,
    CloseSlots,
    CreateMachines,
    DeleteMachine,
    OpenSlots,
    ResetNode,
    ScalingAction,
    close_reason,
    close_slots,
    plan_scaling,
)
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.machine import Machine
from tests.support.clusters import builders

NOW = 1_000_000.0


def cluster(limit: str | None = None) -> Cluster:
    whole = builders.cluster(4, 0)
    price = builders.H100.price_usd_per_node_hour
    names = whole.slot_names
    groups = (
        Group("gpu", builders.H100, 0, 3, slots=names[:3], idle_s=60, price_usd_per_node_hour=price),
        Group("own", builders.H100, 1, 1, slots=names[3:], price_usd_per_node_hour=price),
    )
    return replace(whole, groups=groups, max_usd_per_hour=None if limit is None else Decimal(limit))


def planned(
    *states: str, there: tuple[int, ...] = (), being_created: tuple[int, ...] = (), started: float = NOW, **more: str
) -> list[ScalingAction]:
    """`states` of the nodes in order, as "word" or "word|reason"; `there`: the places of those with a machine."""
    found = cluster(more.get("limit"))
    names = found.slot_names
    told = {name: (text.partition("|")[0], text.partition("|")[2] or "none") for name, text in zip(names, states)}  # noqa: B905
    machines: dict[str, Machine] = {
        names[place]: replace(builders.machine(names[place]), started_at=started) for place in there
    }
    return list(plan_scaling(found, told, machines, {names[place] for place in being_created}, NOW))


def test_creates_one_machine_for_each_resuming_node() -> None:
    assert planned("idle~", "allocated#", "mixed#") == [CreateMachines(("lab-1-2",)), CreateMachines(("lab-1-3",))]
    assert planned("idle~", "allocated#", "mixed#", being_created=(1,), there=(2,)) == []


def test_deletes_machines_of_powered_down_nodes() -> None:
    found = planned("idle~", "idle%", "idle", "idle~", there=(0, 1, 2, 3))
    assert [one.node for one in found if isinstance(one, DeleteMachine)] == [
        "lab-1-1",
        "lab-1-2",
    ]  # people scale the last
    assert len(found) == 2


def test_keeps_machine_of_drained_node() -> None:
    """An older Slurm switches a drained node off as any other that has no jobs."""
    assert planned("drained~|carol: a fan is loud", "drained%|headway: incident 7", there=(0, 1)) == []


def test_deletes_and_recreates_unfinished_machine() -> None:
    (action,) = planned("allocated#", there=(0,), started=NOW - 1000)
    assert isinstance(action, DeleteMachine)
    assert planned("allocated#") == [CreateMachines(("lab-1-1",))]


def test_closes_slots_over_budget() -> None:
    found = planned("allocated#", "allocated#", "idle~", "idle", there=(3,), limit="70")
    assert found[0] == CreateMachines(("lab-1-1",))
    shut = found[1]
    assert isinstance(shut, CloseSlots)
    assert (shut.nodes, shut.until) == (("lab-1-2", "lab-1-3"), NOW + 60)
    assert "70 USD" in shut.why


def test_creates_no_machine_for_job_that_cannot_get_all_nodes() -> None:
    """It goes back to the queue, and what had come up for it would stand there for nobody."""
    found, asks = cluster("100"), ("allocated#", "none")
    states = dict.fromkeys(found.slot_names[:3], asks)

    def made(jobs: dict[str, tuple[int, ...]]) -> list[str]:
        actions = plan_scaling(found, states, {}, (), NOW, jobs=jobs)
        return [name for one in actions if isinstance(one, CreateMachines) for name in one.nodes]

    one, two, three = found.slot_names[:3]
    assert made({}) == [one, two]  # 100 USD pay for two beside the one that people have
    assert made({one: (7,), two: (7,), three: (7,)}) == []
    assert made({one: (7,), two: (8, 9), three: (9,)}) == [one]  # 8 shares a node with 9, which has one too many
    assert made({one: (7,), two: (8,), three: (7,)}) == [one, three]
    assert made({one: (7, 8), two: (8,), three: (7,)}) == []


def test_budget_reserves_minimum_nodes_before_job_demand() -> None:
    """They always have a machine, and are away just now: what runs elsewhere in the group does not stand for them."""
    found = cluster("100")  # pays for three
    first, second, third = found.slot_names[:3]
    groups = (replace(found.groups[0], nodes=1), found.groups[1])
    found, there = replace(found, groups=groups), {third: builders.machine(third)}
    states = {first: ("idle~", "none"), second: ("allocated#", "none"), third: ("allocated", "none")}
    assert not [one for one in plan_scaling(found, states, there, (), NOW) if isinstance(one, CreateMachines)]
    assert CreateMachines((second,)) in list(
        plan_scaling(replace(found, max_usd_per_hour=Decimal(130)), states, there, (), NOW)
    )


def test_closes_group_over_budget_for_given_duration() -> None:
    found = replace(cluster("70"), groups=cluster("70").groups)
    states = dict.fromkeys(found.slot_names[:3], ("allocated#", "none"))
    *_, shut = plan_scaling(found, states, {}, (), NOW, closed_s={"gpu": 240.0})
    assert isinstance(shut, CloseSlots)
    assert shut.until == NOW + 240


def test_budget_reserves_fixed_groups_before_job_demand() -> None:
    """A machine of a group that people scale is away or about to be made: nobody else gets its money."""
    assert not [
        one for one in planned("allocated#", "idle~", "idle~", "down", limit="60") if isinstance(one, CreateMachines)
    ]
    assert planned("allocated#", "idle~", "idle~", "down", limit="63")[0] == CreateMachines(("lab-1-1",))
    found = cluster("63")
    least = replace(found.groups[0], nodes=1)  # the one that it always has counts once
    (action,) = plan_scaling(
        replace(found, groups=(least, found.groups[1])), {"lab-1-1": ("allocated#", "none")}, {}, (), NOW
    )
    assert action == CreateMachines(("lab-1-1",))


def test_closed_slot_reopens_after_its_time_and_has_no_machine() -> None:
    until = f"headway: closed until {NOW + 5:.0f}: no room"
    assert planned(f"down~|{until}") == []
    (action,) = planned(f"down%|{until}", there=(0,))
    assert isinstance(action, DeleteMachine)
    assert planned(f"down~|headway: closed until {NOW - 5:.0f}: no room") == [OpenSlots(("lab-1-1",))]


def test_close_reason_states_time_and_cause() -> None:
    shut = close_slots(
        cluster().groups[0], {"lab-1-1": ("idle~", "none"), "lab-1-2": ("idle", "none")}, ["lab-1-3"], NOW, "no room"
    )
    assert shut.nodes == ("lab-1-1", "lab-1-3")
    assert close_reason(shut) == "headway: closed until 1000000: no room"


def test_resets_node_after_resume_timeout() -> None:
    assert planned("down~|ResumeTimeout reached") == [ResetNode("lab-1-1")]  # slurmctld has it switched off, then down
    (action,) = planned("down~|ResumeTimeout reached", there=(0,))  # its machine goes first
    assert isinstance(action, DeleteMachine)
    assert planned("down~|carol: broken") == []
    assert planned("down*|Not responding") == []


def spot(*states: str, there: tuple[int, ...], started: float = NOW, **more: Collection[str]) -> list[ScalingAction]:
    """A spot group of two nodes in four slots."""
    whole = builders.cluster(4, 0)
    group = replace(whole.groups[0], nodes=2, most=4, spot=True, price_usd_per_node_hour=Decimal(10))
    found = replace(whole, groups=(group,), max_usd_per_hour=Decimal(30))
    names = found.slot_names
    told = {
        name: (text.partition("|")[0], text.partition("|")[2] or "none")
        for name, text in zip(names, states, strict=True)
    }
    machines = {names[place]: replace(builders.machine(names[place]), started_at=started) for place in there}
    return list(plan_scaling(found, told, machines, more.pop("being_created", ()), NOW, **more))


NONE = "down|headway: no machine"


def test_replaces_spot_machine_about_to_be_reclaimed() -> None:
    assert spot("idle", "idle", NONE, NONE, there=(0, 1)) == []
    leaving = {"lab-1-1"}
    assert spot("drained", "idle", NONE, NONE, there=(0, 1), leaving=leaving) == [CreateMachines(("lab-1-3",))]
    assert spot("drained", "idle", NONE, NONE, there=(0, 1), leaving=leaving, being_created={"lab-1-3"}) == []
    assert spot(NONE, "idle", NONE, NONE, there=(1,)) == [CreateMachines(("lab-1-1",))]


def test_deletes_spot_machine_that_never_registered() -> None:
    """Whoever made it was killed, or could not delete it: nobody pays for it for ever."""
    (action,) = spot(NONE, "idle", NONE, NONE, there=(0, 1), started=NOW - 1000)
    assert action == DeleteMachine("lab-1-1", NOT_REGISTERED)
    assert spot(NONE, "idle", NONE, NONE, there=(0, 1), started=NOW - 100) == []  # it may be about to come up
    assert spot(NONE, "idle", NONE, NONE, there=(0, 1), started=NOW - 1000, being_created={"lab-1-1"}) == []
    leaving = spot(NONE, "idle", NONE, NONE, there=(0, 1), started=NOW - 1000, leaving={"lab-1-1"})
    assert leaving == [CreateMachines(("lab-1-3",))]


def test_spot_refill_respects_backoff_budget_and_drained_nodes() -> None:
    assert spot(NONE, "idle", NONE, NONE, there=(1,), backing_off={"main"}) == []
    # The one that goes is paid for until it has gone.
    assert spot("drained", "drained", NONE, NONE, there=(0, 1), leaving={"lab-1-1", "lab-1-2"}) == [
        CreateMachines(("lab-1-3",))
    ]
    assert spot("down|carol: broken", "idle", "down*|Not responding", "drained|headway: leaves", there=(1,)) == []


def test_group_backing_off_is_not_retried() -> None:
    found = cluster()
    states = {"lab-1-1": ("allocated#", "none")}
    assert list(plan_scaling(found, states, {}, (), NOW, backing_off={"gpu"})) == []


def test_pending_cluster_file_limits_budget_for_new_machines() -> None:
    """Four nodes of `a` are to become two, and four of `c` come: then there is money for two more, not for four."""
    whole, price = builders.cluster(12, 0, leaf_size=12), Decimal(10)
    names = whole.slot_names

    def file(a: int, c: int, usd: int | None = 80) -> Cluster:
        groups = (
            Group("a", builders.H100, a, 4, slots=names[:4], price_usd_per_node_hour=price),
            Group("c", builders.H100, c, 4, slots=names[4:8], price_usd_per_node_hour=price),
            Group("b", builders.H100, 0, 4, slots=names[8:], idle_s=60, price_usd_per_node_hour=price),
        )
        return replace(whole, groups=groups, max_usd_per_hour=None if usd is None else Decimal(usd))

    def made(after: Cluster | None, before: Cluster | None = None) -> list[str]:
        states = dict.fromkeys(names[:4], ("idle", "none")) | dict.fromkeys(names[8:], ("allocated#", "none"))
        there = {name: builders.machine(name) for name in names[:4]}
        found = list(plan_scaling(before or file(4, 0), states, there, (), NOW, leaving=names[2:4], next_file=after))
        shut.extend(one.why for one in found if isinstance(one, CloseSlots))
        return [name for one in found if isinstance(one, CreateMachines) for name in one.nodes]

    shut: list[str] = []
    assert made(None) == made(file(4, 0)) == [*names[8:]]
    assert shut == []
    assert made(file(2, 4)) == [*names[8:10]]
    assert made(file(2, 0, 30)) == [names[8]]
    assert made(file(2, 4), file(4, 0, None)) == [*names[8:10]]
    assert shut == [f"over the limit of {usd} USD an hour" for usd in (80, 30, 80)]


def test_spot_group_is_not_refilled_before_pending_scale_down() -> None:
    whole = builders.cluster(4, 0)
    group = replace(whole.groups[0], nodes=2, most=4, spot=True)
    fewer, more, none = (replace(whole, groups=(replace(group, nodes=count),)) for count in (1, 3, 0))
    before, other = replace(whole, groups=(group,)), replace(whole, groups=())
    states = dict.fromkeys(whole.slot_names, ("down", "headway: no machine")) | {"lab-1-1": ("idle", "none")}
    there = {"lab-1-1": builders.machine("lab-1-1")}
    found = [
        list(plan_scaling(before, states, there, (), NOW, next_file=after))
        for after in (None, fewer, more, none, other)
    ]
    assert found == [[CreateMachines(("lab-1-2",))], [], [CreateMachines(("lab-1-2",))], [], []]


def test_nodes_of_one_job_are_created_together() -> None:
    found = cluster()
    one, two, three = found.slot_names[:3]
    states = dict.fromkeys((one, two, three), ("allocated#", "none"))
    jobs = {one: (7,), two: (8,), three: (7,)}
    assert list(plan_scaling(found, states, {}, (), NOW, jobs=jobs)) == [
        CreateMachines((one, three)), CreateMachines((two,))
    ]  # fmt: skip


def test_rented_machine_that_is_none_yet_is_used_or_ended() -> None:
    """A server was killed in the middle: another one goes on where Slurm still needs the machine."""
    found = cluster()
    one, two, three = found.slot_names[:3]
    states = {one: ("allocated#", "none"), two: ("idle~", "none"), three: ("down", "ResumeTimeout reached")}
    begun = {one, two, three}
    assert list(plan_scaling(found, states, {}, (), NOW, begun=begun)) == [
        DeleteMachine(two, "Slurm does not need it"),
        DeleteMachine(three, "no machine is missing there"),
        CreateMachines((one,)),
    ]
    assert list(plan_scaling(found, states, {}, begun, NOW, begun=begun)) == [], "tasks work on them"
    states = {one: ("down~", f"headway: closed until {NOW + 60:.0f}: no capacity")}
    assert list(plan_scaling(found, states, {}, (), NOW, begun={one})) == [DeleteMachine(one, "its slot is closed")]


def test_machine_has_time_to_register_from_when_it_was_set_up() -> None:
    """A rented one boots and installs its packages for many minutes after its start."""
    found = cluster()
    one, two = found.slot_names[:2]
    states = dict.fromkeys((one, two), ("allocated#", "none"))
    there = {name: replace(builders.machine(name), started_at=NOW - 700) for name in (one, two)}
    late = DeleteMachine(two, "it did not come up")
    assert list(plan_scaling(found, states, there, (), NOW, ready_at={one: NOW - 299, two: NOW - 301})) == [late]
    spot = replace(found, groups=(replace(found.groups[0], spot=True), *found.groups[1:]))
    states = dict.fromkeys((one, two), ("down", "headway: no machine"))
    assert late in list(plan_scaling(spot, states, there, (), NOW, ready_at={one: NOW}))
    assert DeleteMachine(one, "it did not come up") not in list(
        plan_scaling(spot, states, there, (), NOW, ready_at={one: NOW})
    )


def test_price_limit_of_a_group_stops_no_other_group() -> None:
    """The limit of `b` was lowered below what runs there."""
    whole, price = builders.cluster(4, 0), Decimal(10)
    names = whole.slot_names
    groups = (
        Group("a", builders.H100, 0, 2, slots=names[:2], idle_s=60, price_usd_per_node_hour=price),
        Group(
            "b",
            builders.H100,
            0,
            2,
            slots=names[2:],
            idle_s=60,
            price_usd_per_node_hour=price,
            max_usd_per_hour=Decimal(5),
        ),
    )
    states = {names[0]: ("allocated#", "none"), names[2]: ("allocated", "none"), names[3]: ("allocated#", "none")}
    there = {names[2]: builders.machine(names[2])}
    found = list(plan_scaling(replace(whole, groups=groups), states, there, (), NOW))
    assert found[0] == CreateMachines((names[0],))
    assert [one.group for one in found if isinstance(one, CloseSlots)] == ["b"]


class _NoPrices(dict[str, Decimal]):
    """Prices that must not be read."""

    def get(self, name: str, *_: object) -> Decimal:  # type: ignore[override]
        raise AssertionError(f"the price of {name} was read")


def test_no_price_is_read_where_no_limit_is_set() -> None:
    """A cluster may have thousands of slots, and each job asks whether there is room for its nodes."""
    found = cluster()
    states = dict.fromkeys(found.slot_names[:2], ("allocated#", "none"))
    actions = plan_scaling(found, states, {}, (), NOW, prices=_NoPrices(other=Decimal(1)))
    assert list(actions) == [CreateMachines((name,)) for name in found.slot_names[:2]]
