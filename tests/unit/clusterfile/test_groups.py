"""Node groups resolve to the right slots, sizes and partitions, and node counts can be changed by scaling."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file, resolve_cluster_file
from headway.clusterfile.node_counts import edit_node_counts, target_node_counts, with_node_counts
from headway.domain.cluster import Cluster
from headway.errors import Conflict, NotFound, Refused
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
GROUPS = """
name: lab
groups:
  gpu: {plan: h100-8, nodes: 2, max: 4, spares: 1}
  cheap: {plan: h100-8, nodes: 1, spot: true, price: 9.5}
  cpu: {plan: cpu-64, min: 1, max: 3, idle: 10}
partitions: {train: {groups: [gpu, cheap]}, any: {}}
"""


def cluster(text: str = GROUPS) -> Cluster:
    return resolve_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[0]


def paths(text: str) -> list[str]:
    return [
        fault.path
        for fault in check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[1]
        if fault.level == "error"
    ]


def test_groups_have_named_slots_for_maximum_nodes_and_spares() -> None:
    got = cluster()
    gpu, cheap, cpu = got.groups
    assert gpu.slots == ("lab-gpu-1-1", "lab-gpu-1-2", "lab-gpu-1-3", "lab-gpu-1-4", "lab-gpu-1-5")
    assert (gpu.nodes, gpu.most, gpu.spares, gpu.idle_s) == (2, 4, 1, None)
    assert (cheap.spot, cheap.price_usd_per_node_hour) == (True, Decimal("9.5"))
    assert (cpu.nodes, cpu.most, cpu.idle_s) == (1, 3, 600)
    assert [leaf.name for leaf in got.switches] == ["gpu-leaf1", "cheap-leaf1", "cpu-leaf1", "spine"]
    assert [slot.number for slot in got.slots] == list(range(1, 10))
    train, everything = got.partitions
    assert train.nodes == (*gpu.slots, *cheap.slots)
    assert everything.nodes == got.slot_names
    assert got.largest_plan.name == "h100-8"
    assert (got.nodes, got.spares, got.gpus) == (4, 1, 24)
    assert [got.role_of(name) for name in ("lab-head", "lab-gpu-1-1", "lab-cpu-1-1")] == [
        "head",
        "node-gpu",
        "node-cpu",
    ]


def test_refuses_reserved_group_with_spot_max_or_idle() -> None:
    text = GROUPS.replace("spot: true", "reserved: true")
    assert [group.reserved for group in cluster(text).groups] == [False, True, False]
    assert paths(GROUPS.replace("spot: true", "spot: true, reserved: true")) == ["groups.cheap.spot"]
    assert paths(GROUPS.replace("max: 4,", "max: 4, reserved: true,")) == ["groups.gpu.max"]
    assert paths(GROUPS.replace("idle: 10", "idle: 10, reserved: true")) == ["groups.cpu.idle"]


def test_refuses_spot_for_owned_machines() -> None:
    text = "name: lab\nprovider: ssh\nhosts: [10.0.0.1, 10.0.0.2]\ngroups: {a: {plan: h100-8, nodes: 1, spot: true}}"
    faults = check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[1]
    assert [(fault.path, fault.message) for fault in faults if "spot" in fault.path] == [
        ("groups.a.spot", "is true, and your own machines are not taken back")
    ]


def test_group_that_scales_may_wait_for_jobs_and_have_a_price_limit() -> None:
    (*_, cpu) = cluster(GROUPS.replace("idle: 10", "idle: 10, queue_time: 15, usd_per_hour: 12.5")).groups
    assert (cpu.queue_time_s, cpu.max_usd_per_hour) == (900, Decimal("12.5"))


def test_raising_group_maximum_renames_no_existing_node() -> None:
    grown = cluster(GROUPS.replace("max: 4", "max: 40").replace("name: lab", "name: lab\nfabric: {leaf_size: 2}"))
    before = cluster(GROUPS.replace("name: lab", "name: lab\nfabric: {leaf_size: 2}"))
    assert set(before.slot_names) < set(grown.slot_names)
    leaf = {slot.name: slot.leaf for slot in grown.slots}
    assert all(leaf[slot.name] == slot.leaf for slot in before.slots)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"plan": "h100-8"}, "plan"),
        ({"nodes": 4}, "nodes"),
        ({"groups": {"gpu": {"plan": "h100-8"}}}, "groups.gpu.nodes"),
        ({"groups": {"gpu": {"plan": "h100-9", "nodes": 1}}}, "groups.gpu.plan"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 3, "max": 2}}}, "groups.gpu.max"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 3, "min": 2}}}, "groups.gpu.min"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 3, "max": 5, "idle": 5}}}, "groups.gpu.nodes"),
        ({"groups": {"gpu": {"plan": "h100-8", "idle": 5}}}, "groups.gpu.max"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 0}}}, "groups.gpu.nodes"),
        ({"groups": {"a-b": {"plan": "h100-8", "nodes": 1}}}, "groups.a-b"),
        ({"groups": {"head": {"plan": "h100-8", "nodes": 1}}}, "groups.head"),
        ({"partitions": {"train": {"groups": ["gpu", "gpus"]}}}, "partitions.train.groups[1]"),
        ({"partitions": {"train": {"nodes": 1}}}, "partitions.train.nodes"),
        ({"cost": {"usd_per_hour": 30}}, "cost.usd_per_hour"),
        ({"provider": "ssh"}, "groups.gpu.max"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 1, "queue_time": 15}}}, "groups.gpu.queue_time"),
        ({"groups": {"gpu": {"plan": "h100-8", "nodes": 1, "usd_per_hour": 99}}}, "groups.gpu.usd_per_hour"),
        (
            {"groups": {"gpu": {"plan": "h100-8", "max": 2, "idle": 5, "queue_time": "infinite"}}},
            "groups.gpu.queue_time",
        ),
        ({"groups": {"gpu": {"plan": "h100-8", "max": 2, "idle": 5, "usd_per_hour": 1}}}, "groups.gpu.usd_per_hour"),
    ],
)
def test_group_errors_name_their_field(change: dict[str, Any], path: str) -> None:
    spec = {"name": "lab", "groups": {"gpu": {"plan": "h100-8", "nodes": 2, "max": 4}}, **change}
    found = [fault.path for fault in check_cluster_file(spec, CATALOGUE, owner="ann")[1] if fault.level == "error"]
    assert path in found


def test_short_form_accepts_max_nodes() -> None:
    (group,) = cluster("name: lab\nplan: h100-8\nnodes: 0\nmax: 3").groups
    assert (group.name, group.nodes, group.slots) == ("main", 0, ("lab-1-1", "lab-1-2", "lab-1-3"))
    assert paths("name: lab\nplan: h100-8\nnodes: 4\nmax: 3") == ["max"]


def test_partition_size_does_not_depend_on_cluster_node_count() -> None:
    """Scaling changes no file of Slurm: what a partition has is the same before and after."""
    text = "name: lab\nplan: h100-8\nnodes: {}\nmax: 8\nspares: 1\npartitions: {{train: {{nodes: 4}}, any: {{}}}}\n"
    for nodes in (2, 4, 6):
        train, every = cluster(text.format(nodes)).partitions
        assert (len(train.nodes), len(every.nodes)) == (4, 9)
    _, told = check_cluster_file(parse_yaml(text.format(4)), CATALOGUE, owner="ann")
    assert [(one.path, one.level) for one in told] == [("partitions.train.nodes", "warning")]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (GROUPS, []),
        (GROUPS.replace(", any: {}", ""), ["groups.cpu"]),
        (GROUPS.replace(", any: {}", ", slow: {groups: [cpu]}"), []),
        ("name: lab\nplan: h100-8\nnodes: 4\nspares: 2\npartitions: {train: {nodes: 3}}", ["nodes", "spares"]),
        ("name: lab\nplan: h100-8\nnodes: 4\npartitions: {train: {nodes: 3}, debug: {nodes: 1}}", ["nodes"]),
        ("name: lab\nplan: h100-8\nnodes: 2\nmax: 8\npartitions: {train: {nodes: 6}}", ["max"]),
        ("name: lab\nplan: h100-8\nnodes: 4\nspares: 2\npartitions: {train: {nodes: 3}, any: {}}", []),
        ("name: lab\nplan: h100-8\nnodes: 4\nspares: 2\npartitions: {train: {nodes: 4}}", ["partitions.train.nodes"]),
        ("name: lab\nplan: h100-8\nnodes: 4\nspares: 2", []),
    ],
)
def test_warns_about_nodes_outside_all_partitions(text: str, where: list[str]) -> None:
    """They are paid for, and no job can use them."""
    got, told = check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")
    assert got is not None
    assert [(one.path, one.level) for one in told] == [(path, "warning") for path in where]
    assert all(one.hint for one in told if not one.path.startswith("partitions"))


def test_lowering_node_count_keeps_slots_through_max() -> None:
    spec = {"name": "lab", "plan": "h100-8", "nodes": 4}
    less = with_node_counts(spec, {"main": 1})
    assert less == {**spec, "nodes": 1, "max": 4}
    assert with_node_counts(less, {"main": 4}) == {**spec, "max": 4}
    assert with_node_counts(less, {"main": 6}) == {**spec, "nodes": 6, "max": 6}
    assert spec["nodes"] == 4
    long = {"groups": {"gpu": {"nodes": 2, "max": 8}, "cpu": {"nodes": 1}}}
    assert with_node_counts(long, {"gpu": 0})["groups"] == {"gpu": {"nodes": 0, "max": 8}, "cpu": {"nodes": 1}}


def test_owned_machines_scale_without_setting_max() -> None:
    """All of theirs are in hosts: `max` is for providers that make machines."""
    hosts = [f"10.0.0.{number}" for number in range(1, 6)]
    spec = {"name": "lab", "provider": "ssh", "plan": "h100-8", "nodes": 3, "hosts": hosts}
    less = with_node_counts(spec, {"main": 2})
    assert less == {**spec, "nodes": 2}
    smaller, faults = check_cluster_file(less, CATALOGUE, owner="ann")
    assert not [fault for fault in faults if fault.level == "error"]
    assert smaller is not None
    assert [host.name for host in smaller.hosts] == ["lab-head", "lab-1-1", "lab-1-2", "", ""]
    more, faults = check_cluster_file(with_node_counts(less, {"main": 4}), CATALOGUE, owner="ann")
    assert more is not None
    assert more.slot_names == ("lab-1-1", "lab-1-2", "lab-1-3", "lab-1-4")
    assert with_node_counts({**spec, "max": 3}, {"main": 2}) == {**spec, "nodes": 2}
    long = {"provider": "ssh", "groups": {"gpu": {"nodes": 2}, "cpu": {"nodes": 1}}}
    assert with_node_counts(long, {"gpu": 1})["groups"] == {"gpu": {"nodes": 1}, "cpu": {"nodes": 1}}


def test_owned_machine_scale_errors_do_not_mention_max() -> None:
    spec = {"name": "lab", "provider": "ssh", "plan": "h100-8", "nodes": 1, "hosts": ["10.0.0.1", "10.0.0.2"]}
    told = {
        (fault.path, fault.message)
        for fault in check_cluster_file(with_node_counts(spec, {"main": 5}), CATALOGUE, owner="ann")[1]
    }
    assert [message for path, message in told if path == "hosts"]
    (none,) = [
        fault
        for fault in check_cluster_file(with_node_counts(spec, {"main": 0}), CATALOGUE, owner="ann")[1]
        if fault.path == "nodes"
    ]
    assert "max" not in none.hint


def test_node_count_edit_keeps_comments_in_file() -> None:
    text = "name: lab  # ours\nplan: h100-8\nnodes: 4   # not many\n"
    spec = parse_yaml(text)
    less = with_node_counts(spec, {"main": 1})
    assert edit_node_counts(text, spec, less) == "name: lab  # ours\nplan: h100-8\nnodes: 1   # not many\nmax: 4\n"
    assert edit_node_counts("{name: lab, plan: h100-8, nodes: 4}", spec, less) == "{name: lab, plan: h100-8, nodes: 4}"
    own = {**spec, "provider": "ssh", "max": 4}
    text = f"{text}max: 4\nprovider: ssh\n"
    fewer = "name: lab  # ours\nplan: h100-8\nnodes: 1   # not many\nprovider: ssh\n"
    assert edit_node_counts(text, own, with_node_counts(own, {"main": 1})) == fewer


def test_refuses_to_scale_autoscaled_unknown_or_ambiguous_group() -> None:
    got = cluster()
    assert target_node_counts(got, {"gpu": 3}) == {"gpu": 3}
    assert target_node_counts(cluster("name: lab\nplan: h100-8\nnodes: 2"), {"": 3}) == {"main": 3}
    with pytest.raises(Conflict, match="scales automatically"):
        target_node_counts(got, {"cpu": 3})
    with pytest.raises(NotFound, match="no group 'gpus'"):
        target_node_counts(got, {"gpus": 3})
    with pytest.raises(Refused, match="several groups"):
        target_node_counts(got, {"": 3})


def test_cost_may_equal_its_limit() -> None:
    text = "name: lab\ncost: {usd_per_hour: 0.3}\ngroups: {gpu: {plan: h100-8, nodes: 3, price: 0.1}}"
    assert cluster(text).min_usd_per_hour == Decimal("0.3")


def test_price_in_the_file_is_no_limit_for_rented_machines() -> None:
    """They cost the price of the cloud's offers, which the file does not know."""
    text = "name: lab\nprovider: aws\ncloud: {region: r}\ncost: {usd_per_hour: 1}\nplan: h100-8\nnodes: 3"
    assert cluster(text).max_usd_per_hour == Decimal(1)


def test_spot_fallback_needs_spot_machines_of_a_cloud() -> None:
    group = "{plan: h100-8, nodes: 1, spot: true, spot_fallback: on-demand}"
    rented = f"name: lab\nprovider: aws\ncloud: {{region: r}}\ngroups: {{a: {group}}}"
    assert cluster(rented).groups[0].on_demand_fallback
    assert paths(rented.replace("spot: true, ", "")) == ["groups.a.spot_fallback"]
    assert paths(rented.replace("provider: aws\ncloud: {region: r}\n", "")) == ["groups.a.spot_fallback"]
    assert paths(rented.replace("fallback: on-demand", "fallback: reserved")) == ["groups.a.spot_fallback"]
