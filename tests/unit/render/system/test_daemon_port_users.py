"""Only root and Prometheus reach metrics and alerts, and only root the agent of a head."""

from __future__ import annotations

from dataclasses import replace

from headway.render.files_by_role import render_files
from headway.render.system.daemon_port_users import RULES, SERVICE
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import gpu_cluster, site_of, two_heads_cluster

GPU, TWO = gpu_cluster(), two_heads_cluster()
WITHOUT_ADMIN = replace(GPU, users=tuple(replace(user, admin=False) for user in GPU.users))


def test_users_of_the_head_reach_neither_metrics_nor_alerts() -> None:
    rules = render_files(WITHOUT_ADMIN, site_of(WITHOUT_ADMIN))["head"][RULES].text
    refused = 'meta skuid != { 0, "prometheus" } reject with tcp reset'
    assert f'oifname "lo" tcp dport {{ 6822, 9090, 9093 }} {refused}\n' in rules
    assert f"        tcp dport 6822 {refused}\n" in rules, "nodes accept the head's address"


def test_the_person_who_applied_reaches_metrics_on_the_head_only() -> None:
    cluster = replace(GPU, users=tuple(replace(user, admin=user.name == "alice") for user in GPU.users))
    rendered = render_files(cluster, site_of(cluster))
    uid = site_of(cluster).uids["alice"]
    assert f'skuid != {{ 0, {uid}, "prometheus" }}' in rendered["head"][RULES].text
    assert "skuid != { 0 }" in rendered["node"][RULES].text


def test_nodes_answer_heads_only() -> None:
    site = site_of(TWO)
    heads = ", ".join(site.addresses[name] for name in TWO.heads)
    rules = render_files(TWO, site)["node"][RULES].text
    assert f"tcp dport 6822 ip saddr != {{ {heads} }} drop\n" in rules
    assert 'oifname "lo" tcp dport { 6822 } meta skuid != { 0 } reject' in rules
    assert '"prometheus"' not in rules, "nodes need not have this user"


def test_users_of_a_machine_can_not_take_the_connections_for_secrets() -> None:
    rendered = render_files(GPU, site_of(GPU))
    head = site_of(GPU).addresses[GPU.head]
    for role in ("node", "head"):
        output = rendered[role][RULES].text.partition("chain output")[2]
        assert f"        ip daddr {{ {head} }} tcp dport 6821 meta skuid != 0 reject with tcp reset\n" in output, role


def test_every_machine_loads_the_rules() -> None:
    site = site_of(TWO)
    for role, units in units_by_role(TWO, site).items():
        assert SERVICE in [unit.name for unit in units], role
        assert RULES in render_files(TWO, site)[role], role


def test_users_of_a_head_do_not_answer_at_the_port_of_services() -> None:
    rendered = render_files(TWO, site_of(TWO))
    for role in ("head", "head2"):
        output = rendered[role][RULES].text.partition("chain output")[2]
        assert "        tcp sport 8470 meta skuid >= 1000 drop\n" in output, role
