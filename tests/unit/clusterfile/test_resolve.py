"""A file without errors resolves to the right cluster."""

from __future__ import annotations

import re
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.json_schema import cluster_file_schema
from headway.clusterfile.load import check_cluster_file, resolve_cluster_file
from headway.clusterfile.starter_file import starting_file
from headway.domain.billing.cost_settings import CostSettings, InvoiceSettings
from headway.domain.cluster import Alerts, Cluster, Host, Slot, Switch
from headway.domain.machines.machine import Jump
from headway.domain.network_policy import Network, NetworkPolicy
from headway.domain.teams import Budget, GpuHourCap, UserLimits
from headway.errors import Fault, InvalidSpec
from headway.render.escaping import check_plain_strings
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkmVv3MMU8rK1RtH0oxfnDOZzTQAv4wqeYmLM8lJ2Vm"
SMALLEST: dict[str, Any] = {"name": "lab", "plan": "h100-8", "nodes": 4}

WHOLE = f"""
name: lab
provider: local
image: debian13
plan: h100-8
nodes: 4
spares: 1
fabric: {{leaf_size: 4}}
ssh_keys: ["{KEY} carol's laptop"]
storage:
  home: {{quota: 100 GiB}}
  scratch: {{}}
  datasets: [{{name: tiny, path: /srv/data/tiny/, mount: /datasets/tiny/}}]
partitions:
  train: {{default: true, max_time: "7-00:00:00", default_time: "1-00:00:00"}}
  debug: {{nodes: 1, max_time: 02:00:00, per_user: {{submitted_jobs: 4, gpus: 2, cpus: 8}}}}
  urgent: {{tier: 2, preempts: [train, debug], teams: [vision], slurm: {{MaxNodes: 2}}}}
teams:
  vision: {{users: [alice, bob], share: 60, limits: {{gpu_hours: {{hours: 720, per: month}}, running_jobs: 50,
    per_user: {{running_jobs: 20, recent_gpu_hours: 12.5}}}}}}
  speech: {{users: [carol], share: 40}}
users:
  alice: {{ssh_keys: ["{KEY}"]}}
  bob:
slurm: {{PriorityWeightAge: 2000}}
departures: {{jobs: finish}}
mail: {{relay: "mail.example.org:25"}}
alerts: {{webhook: "https://example.org/a?b=c", mail: oncall@example.org}}
"""
ENVIRONMENTS = """
environments:
  vision: [torch>=2.6, "numpy; python_version<'3.14'"]
  text: |
    --index-url https://pypi.lab/simple
    transformers\t# from the lab
environment: vision
partitions: {train: {environment: text@2}, debug: {container_image: 'nvcr.io/nvidia/pytorch:25.04-py3'}}
teams: {t: {users: [bob], environment: none}, u: {users: [eve], container_image: 'nvcr.io/nvidia/jax:25.04-py3'}}
"""
SMALL = "name: lab\nplan: h100-8\nnodes: 4\n"


def cluster(text: str, owner: str = "carol") -> Cluster:
    return resolve_cluster_file(parse_yaml(text), CATALOGUE, owner=owner)[0]


def test_smallest_file_resolves_with_defaults() -> None:
    got, _ = resolve_cluster_file(SMALLEST, CATALOGUE, owner="ann")
    assert got.head == "lab-head"
    assert (got.provider.name, got.image, got.slurm_version) == ("local", "debian13", "24.11")
    assert got.slot_names == ("lab-1-1", "lab-1-2", "lab-1-3", "lab-1-4")
    assert got.switches == ()
    (partition,) = got.partitions
    assert (partition.name, partition.default, partition.nodes, partition.max_time_s) == (
        "train",
        True,
        got.slot_names,
        None,
    )
    (team,) = got.teams
    assert (team.name, team.users, team.share) == ("default", ("ann",), 1)
    (user,) = got.users
    assert (user.name, user.teams, user.admin, user.ssh_keys) == ("ann", ("default",), True, ())
    assert got.simulated_gpus


def test_full_file_resolves_all_fields() -> None:
    got = cluster(WHOLE)
    train, debug, urgent = got.partitions
    assert train.nodes == got.slot_names  # the spare too
    assert debug.nodes == ("lab-1-1",)
    assert (train.tier, debug.tier, urgent.tier) == (1, 1, 2)
    assert (train.preemptable, debug.preemptable, urgent.preemptable) == (True, True, False)
    assert (train.max_time_s, train.default_time_s, debug.max_time_s) == (604800, 86400, 7200)
    assert train.grace_s == 120
    assert urgent.teams == ("vision",)
    assert urgent.slurm == {"MaxNodes": "2"}
    assert got.slurm == {"PriorityWeightAge": "2000"}
    assert got.teams[0].gpu_hours == GpuHourCap(Decimal(720), "month")
    assert got.teams[0].per_user == UserLimits(running_jobs=20, recent_gpu_hours=Decimal("12.5"))
    assert debug.per_user == UserLimits(submitted_jobs=4, gpus=2, cpus=8)
    assert (train.qos, debug.qos) == ("", "partition.debug")
    assert got.departed_jobs == "finish"
    assert got.mail_relay == "mail.example.org:25"
    assert got.alerts == Alerts("https://example.org/a?b=c", "", "oncall@example.org")
    assert got.largest_plan.expects["nvlinks"] == 18
    (dataset,) = got.storage.datasets
    assert (dataset.source, dataset.mount, dataset.read_only) == ("/srv/data/tiny", "/datasets/tiny", True)
    assert got.storage.quotas == {"/home": 100 << 30}
    users = {user.name: user for user in got.users}
    assert set(users) == {"alice", "bob", "carol"}
    assert users["carol"].admin
    assert not users["alice"].admin
    assert users["carol"].ssh_keys == (f"{KEY} carol-s-laptop",)
    assert users["alice"].ssh_keys == (KEY,)


def test_spares_take_last_slots_and_leaf_switches() -> None:
    got = cluster(WHOLE)
    assert got.slots[-1] == Slot("lab-2-1", "leaf2", 5)
    assert [slot.number for slot in got.slots] == [1, 2, 3, 4, 5]
    assert got.switches == (
        Switch("leaf1", nodes=("lab-1-1", "lab-1-2", "lab-1-3", "lab-1-4")),
        Switch("leaf2", nodes=("lab-2-1",)),
        Switch("spine", children=("leaf1", "leaf2")),
    )


def test_explicit_switch_tree_is_resolved() -> None:
    spec = SMALLEST | {
        "spares": 1,
        "fabric": {
            "switches": [
                {"name": "core", "children": ["west", "east"]},
                {"name": "west", "nodes": 2},
                {"name": "east", "nodes": 3},
            ]
        },
    }
    got, _ = resolve_cluster_file(spec, CATALOGUE, owner="ann")
    assert got.slots[2] == Slot("lab-2-1", "east", 3)
    assert got.switches[-1] == Switch("core", children=("west", "east"))


def test_owner_in_no_team_gets_default_team() -> None:
    got = cluster(WHOLE, owner="zoe")
    assert got.teams[-1].name == "default"
    assert got.teams[-1].users == ("zoe",)
    zoe = next(user for user in got.users if user.name == "zoe")
    assert zoe.admin
    assert zoe.ssh_keys == (f"{KEY} carol-s-laptop",)


def test_user_in_two_teams_has_first_as_default() -> None:
    spec = SMALLEST | {"teams": {"one": {"users": ["ann"]}, "two": {"users": ["ann", "bob"]}}}
    got, _ = resolve_cluster_file(spec, CATALOGUE, owner="ann")
    assert next(user for user in got.users if user.name == "ann").teams == ("one", "two")


def test_first_partition_is_default_unless_specified() -> None:
    got, _ = resolve_cluster_file(SMALLEST | {"partitions": {"a": None, "b": {}}}, CATALOGUE, owner="ann")
    assert [part.default for part in got.partitions] == [True, False]


def test_nfs_volume_accepts_ipv6_server() -> None:
    (volume,) = cluster(
        f"{SMALL}storage: {{volumes: [{{name: box, path: /box, mount: 'nfs4 [fd00::1]:/x rw,hard'}}]}}"
    ).storage.volumes
    assert (volume.type, volume.source, volume.options) == ("nfs4", "[fd00::1]:/x", ("rw", "hard"))


def test_infinite_max_time_resolves_to_no_limit() -> None:
    got, _ = resolve_cluster_file(
        SMALLEST | {"partitions": {"a": {"max_time": "infinite", "default_time": 90}}}, CATALOGUE, owner="ann"
    )
    assert (got.partitions[0].max_time_s, got.partitions[0].default_time_s) == (None, 5400)


def test_inventory_assigns_hosts_by_position() -> None:
    hosts: list[object] = ["10.0.0.1", {"address": "n1.example.org", "user": "ops", "port": 2222, "key": "/etc/hw/key"}]
    got, _ = resolve_cluster_file(
        {"name": "own", "plan": "cpu-64", "nodes": 1, "provider": "ssh", "hosts": hosts}, CATALOGUE, owner="ann"
    )
    assert got.hosts == (Host("own-head", "10.0.0.1"), Host("own-1-1", "n1.example.org", "ops", 2222, "/etc/hw/key"))
    assert not got.simulated_gpus


def test_head_role_may_be_any_host_and_surplus_hosts_are_reserve() -> None:
    jump = {"address": "bastion", "user": "guest"}
    hosts: list[object] = ["n1", {"address": "n2", "key": "/k", "jump": jump}, {"address": "h", "role": "head"}]
    got, _ = resolve_cluster_file(
        {"name": "own", "plan": "cpu-64", "nodes": 1, "provider": "ssh", "hosts": hosts}, CATALOGUE, owner="ann"
    )
    assert got.hosts == (
        Host("own-head", "h"),
        Host("own-1-1", "n1"),
        Host("", "n2", key="/k", jump=Jump("bastion", "guest", key="/k")),
    )


def test_host_with_node_role_never_becomes_head() -> None:
    hosts: list[object] = [{"address": "n1", "role": "node"}, "n2", {"address": "n3", "role": "node"}, "n4"]
    own: dict[str, object] = {"name": "own", "plan": "cpu-64", "nodes": 2, "provider": "ssh", "hosts": hosts}
    got, _ = resolve_cluster_file(own, CATALOGUE, owner="ann")
    assert [(host.name, host.address) for host in got.hosts] == [
        ("own-head", "n2"), ("own-1-1", "n1"), ("own-1-2", "n3"), ("", "n4"),
    ]  # fmt: skip
    got, _ = resolve_cluster_file(own | {"controllers": 2, "storage": {"state": "/s"}}, CATALOGUE, owner="ann")
    assert [host.address for host in got.hosts] == ["n2", "n4", "n1", "n3"]


def test_debian12_image_resolves_to_slurm_22_05() -> None:
    assert resolve_cluster_file(SMALLEST | {"image": "debian12"}, CATALOGUE, owner="ann")[0].slurm_version == "22.05"


def test_resolution_is_deterministic() -> None:
    assert cluster(WHOLE) == cluster(WHOLE)


def test_warnings_do_not_prevent_resolution() -> None:
    spec = SMALLEST | {
        "teams": {
            "t": {
                "users": ["ann"],
                "limits": {"gpus": 99, "running_jobs": 5, "submitted_jobs": 2, "per_user": {"running_jobs": 6}},
            }
        },
        "partitions": {"p": {"per_user": {"running_jobs": 5, "submitted_jobs": 2}}},
    }
    got, faults = check_cluster_file(spec, CATALOGUE, owner="ann")
    assert got is not None
    assert {(fault.path, fault.level) for fault in faults} == {
        ("teams.t.limits.gpus", "warning"),
        ("teams.t.limits.submitted_jobs", "warning"),
        ("teams.t.limits.per_user.running_jobs", "warning"),
        ("partitions.p.per_user.submitted_jobs", "warning"),
    }


@pytest.mark.parametrize(
    ("partitions", "named"),
    [
        (None, "train"),
        ({"a": {}, "b": {"max_time": "7-0"}, "c": {"default_time": "1-0"}, "d": {"max_time": "UNLIMITED"}}, "a, d"),
        ({"a": {"default_time": "UNLIMITED"}, "b": {"teams": ["u"]}, "c": {"groups": ["cpu"]}}, "a"),
        ({"a": {"max_time": "7-0"}}, ""),
    ],
)
def test_warns_when_gpu_hour_cap_applies_to_unlimited_partitions(partitions: dict[str, Any] | None, named: str) -> None:
    """Slurm starts no job without an end under it: it counts what the job may use."""
    spec = {
        "name": "lab",
        "groups": {"gpu": {"plan": "h100-8", "nodes": 1}, "cpu": {"plan": "cpu-64", "nodes": 1}},
        "partitions": partitions,
        "teams": {
            "t": {"users": ["ann"], "limits": {"gpu_hours": {"hours": 720, "per": "month"}}},
            "u": {"users": ["bob"], "limits": {"gpus": 8}},
        },
    }
    got, faults = check_cluster_file({key: value for key, value in spec.items() if value}, CATALOGUE, owner="ann")
    assert got is not None, faults
    told = {fault.path: str(fault) for fault in faults}
    assert set(told) == ({"teams.t.limits.gpu_hours"} if named else set())
    assert (
        not named
        or f"without --time in {named} pending, because the job has no time limit; give {named} a default_time"
        in str(told)
    )


def test_invalid_file_reports_every_error() -> None:
    with pytest.raises(InvalidSpec) as caught:
        resolve_cluster_file({"name": "Lab", "plan": "h100", "nodes": 0}, CATALOGUE, owner="ann")
    assert [fault.path for fault in caught.value.faults] == ["name", "plan", "nodes"]
    assert "3 faults" in str(caught.value)


def test_starting_file_is_valid_with_and_without_examples() -> None:
    text = starting_file("lab")
    assert check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")[1] == []
    # Prose starts with a capital letter; what is left behind a "# " is an example.
    example = re.sub(r"(?m)^( *)# (?![A-Z`(])", r"\1", text)
    spec = parse_yaml(example)
    assert set(spec) >= {"teams", "users", "mail", "slurm", "departures", "ssh_keys"}
    spec["ssh_keys"] = spec["users"]["alice"]["ssh_keys"] = [KEY]
    spec["storage"]["datasets"][0]["path"] = "/srv/tiny"
    assert check_cluster_file(spec, CATALOGUE, owner="ann")[1] == []
    assert "urgent" in spec["partitions"]


def test_starting_file_refuses_invalid_name() -> None:
    with pytest.raises(InvalidSpec):
        starting_file("Lab: {x: 1}\n")


def test_quickstart_example_resolves_for_demo() -> None:
    text = (Path(__file__).parents[3] / "examples" / "quickstart.yaml").read_text()
    got, faults = check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")
    assert faults == []
    assert got is not None
    assert (got.name, got.plan_names, got.nodes, got.spares, len(got.slots)) == ("demo", "h100-8", 4, 1, 5)


def test_catalogue_plan_names_match_their_hardware() -> None:
    assert set(CATALOGUE) == {"h100-8", "h200-8", "a100-8", "l40s-4", "b200-8", "cpu-64"}
    for name, plan in CATALOGUE.items():
        kind, _, count = name.partition("-")
        assert (plan.gpu_type or "cpu") == kind
        assert (plan.gpus or plan.cpus) == int(count)
        assert plan.price_usd_per_node_hour > 0
        assert bool(plan.gpu_product) is bool(plan.gpus)


def test_custom_catalogue_adds_and_overrides_plans() -> None:
    own = {
        "cpu-64": {"cpus": 64, "memory_mib": 131072},
        "mi-2": {"gpus": 2, "gpu_type": "mi", "cpus": 8, "memory_mib": 65536, "price_usd_per_node_hour": 1.1},
    }
    plans = load_catalogue(own)
    assert plans["cpu-64"].memory_mib == 131072
    assert plans["mi-2"].price_usd_per_node_hour == Decimal("1.1")
    assert CATALOGUE["cpu-64"].memory_mib == 262144


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"cpu": 4, "cpus": 4, "memory_mib": 4096}, "catalogue.x.cpu"),
        ({"cpus": 4}, "catalogue.x.memory_mib"),
        ({"cpus": 4, "memory_mib": 4096, "gpus": 2}, "catalogue.x.gpu_type"),
        ({"cpus": 4, "memory_mib": 4096, "gpus": 2, "gpu_type": "h1 State=DOWN"}, "catalogue.x.gpu_type"),
        (
            {"cpus": 4, "memory_mib": 4096, "price_usd_per_node_hour": float("nan")},
            "catalogue.x.price_usd_per_node_hour",
        ),
        ("h100-8", "catalogue.x"),
    ],
)
def test_invalid_catalogue_names_faulty_field(entry: object, path: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        load_catalogue({"x": entry})
    assert [fault.path for fault in caught.value.faults] == [path]


def test_ten_thousand_nodes_resolve_within_three_seconds() -> None:
    hosts = [f"10.{n // 62500}.{n // 250 % 250}.{n % 250 + 1}" for n in range(10_001)]
    spec = SMALLEST | {
        "nodes": 10_000,
        "provider": "ssh",
        "hosts": hosts,
        "fabric": {"leaf_size": 32},
        "partitions": {"train": {}, "debug": {"nodes": 64}, "urgent": {"preempts": ["train", "debug"]}},
    }
    best = 99.0
    for _ in range(3):  # CPU time, best of three: the machine is shared
        start = time.process_time()
        got, _ = resolve_cluster_file(spec, CATALOGUE, owner="ann")
        best = min(best, time.process_time() - start)
    assert len(got.slots) == len(set(got.slot_names)) == 10_000
    assert len(got.switches) == 314
    assert best <= 3.0  # 0.2 s on an idle machine


def test_schema_describes_every_field() -> None:
    document = cluster_file_schema()
    assert set(document["properties"]) >= set(SMALLEST) | {"partitions", "teams", "fabric", "hosts", "mail"}
    assert document["required"] == ["name"]
    assert document["anyOf"] == [{"required": ["plan", "nodes"]}, {"required": ["groups"]}]
    assert document["additionalProperties"] is False
    for name, part in {"": document, **document["$defs"]}.items():
        for field, value in part["properties"].items():
            assert value.get("description"), f"{name}.{field}"
    assert document["properties"]["slurm"]["additionalProperties"] is False
    assert "PriorityWeightAge" in document["properties"]["slurm"]["properties"]


def test_fault_formats_as_one_line() -> None:
    fault = Fault("partitions.urgent.preempt", "unknown field", "did you mean preempts?")
    assert str(fault) == "partitions.urgent.preempt: unknown field; did you mean preempts?"


def test_container_backend_defaults_to_builtin() -> None:
    hosts = {"provider": "ssh", "hosts": [f"10.0.0.{n}" for n in range(9)]}
    given: list[tuple[dict[str, object], str]] = [
        ({}, "builtin"),
        ({"containers": {"backend": "builtin"}}, "builtin"),
        (hosts, "builtin"),
        ({**hosts, "containers": {"backend": "enroot"}}, "enroot"),
    ]
    for part, runs in given:
        cluster, faults = check_cluster_file({**SMALLEST, **part}, CATALOGUE, owner="ann")
        assert cluster is not None, faults
        assert cluster.containers == runs


def test_health_xid_classes_can_be_overridden() -> None:
    smallest = "name: lab\nplan: h100-8\nnodes: 4\n"
    assert cluster(smallest + "health: {xid: {63: drain, 31: log}}").health.xid_classes == {63: "drain", 31: "log"}
    assert cluster(smallest + 'health: {xid: {"63": drain}}').health.xid_classes == {63: "drain"}, (
        "as a document of the API"
    )
    for wrong in ("{63: burn}", "{x: drain}", "{0: drain}", "{true: drain}"):
        with pytest.raises(InvalidSpec, match=r"health\.xid"):
            cluster(smallest + f"health: {{xid: {wrong}}}")


def test_resolves_cost_settings_and_team_budgets() -> None:
    got = cluster(
        """
        name: lab
        plan: h100-8
        nodes: 1
        cost:
          {timezone: Europe/Berlin, idle: "centre:platform", spare: use, usd_per_kwh: 0.31, fixed: "centre:it",
           fixed_usd_per_hour: {head: 1.1, disks: 0.42},
           invoice: {issuer: "Example Ltd\\n1 Main Street", tax_percent: 19.5, due_days: 14}}
        teams:
          vision: {users: [carol], budget: {usd: 20000.5, warn: 0.5}}
          speech: {users: [carol], budget: {gpu_hours: 40, per: week, cap: false}}
        """
    )
    assert got.costs == CostSettings(
        "Europe/Berlin",
        "centre:platform",
        "use",
        "share",
        1.3,
        Decimal("0.31"),
        "centre:it",
        {"disks": Decimal("0.42"), "head": Decimal("1.1")},
        InvoiceSettings(("Example Ltd", "1 Main Street"), (), Decimal("19.5"), 14),
    )
    check_plain_strings(got)  # rendering refuses texts of several lines
    assert got.teams[0].budget == Budget("usd", Decimal("20000.5"), "month", 0.5, True)
    assert got.teams[1].budget == Budget("gpu_hours", Decimal(40), "week", 0.8, False)
    assert cluster("{name: lab, plan: h100-8, nodes: 1}").costs == CostSettings()


def test_environments_resolve_to_lines_and_defaults() -> None:
    found = cluster(SMALL + ENVIRONMENTS)
    assert found.environments["vision"] == ("torch>=2.6", "numpy; python_version<'3.14'")
    assert found.environments["text"][0] == "--index-url https://pypi.lab/simple"
    assert found.environments["text"][1].split() == ["transformers", "#", "from", "the", "lab"]
    assert found.environment == "vision"
    assert [one.environment for one in found.partitions] == ["text@2", ""]
    assert found.teams[0].environment == "none"
    assert found.partitions[1].container_image == "nvcr.io/nvidia/pytorch:25.04-py3"
    assert [one.container_image for one in found.teams[:2]] == ["", "nvcr.io/nvidia/jax:25.04-py3"]


def test_network_of_a_team_replaces_that_of_the_cluster() -> None:
    found = cluster(
        SMALL + "network: {job_ports: user, internet: closed, machine_networks: [10.20.0.0/16]}\n"
        "teams: {a: {users: [bob]}, b: {users: [eve], network: {internet: open}},\n"
        "        c: {users: [eve], network: {job_ports: team, internet: [10.0.0.0/8, 192.0.2.7]}}}\n"
    )
    assert found.network == Network(NetworkPolicy("user", ()), ("10.20.0.0/16",))
    assert [team.network for team in found.teams[:3]] == [
        NetworkPolicy("user", ()),
        NetworkPolicy("user", None),
        NetworkPolicy("team", ("10.0.0.0/8", "192.0.2.7")),
    ]
    assert found.restricts_network
    assert not cluster(SMALL).restricts_network
    assert cluster(SMALL + "teams: {a: {users: [bob], network: {internet: closed}}}").restricts_network


@pytest.mark.parametrize(
    ("text", "built"),
    [
        (SMALL, {}),
        ("name: lab\nprovider: ssh\nplan: h100-8\nnodes: 1\nhosts: [10.0.0.1, 10.0.0.2]\n", {"pytorch": ("torch", "numpy")}),
        ("name: lab\nprovider: ssh\nplan: h100-8\nnodes: 1\nhosts: [10.0.0.1, 10.0.0.2]\nenvironments: {pytorch: []}\n", {}),
        ("name: lab\nprovider: ssh\nplan: cpu-64\nnodes: 1\nhosts: [10.0.0.1, 10.0.0.2]\n", {}),
    ],
)  # fmt: skip
def test_pytorch_is_built_where_gpus_are_real(text: str, built: dict[str, tuple[str, ...]]) -> None:
    assert cluster(text).environments == built
