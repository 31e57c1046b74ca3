"""The rules of the network policy are those of the cluster file, and only where it restricts jobs."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headway.domain.cluster import Cluster
from headway.domain.network_policy import Network, NetworkPolicy
from headway.render.files_by_role import render_files
from headway.render.machine_paths import EPILOG, PROLOG
from headway.render.slurm.hooks.job_network import RULES, SCRIPT
from headway.render.system.job_network import SERVICE, user_numbers
from headway.render.system.nftables_unit import path_of
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def _cluster(policy: NetworkPolicy, machine_networks: tuple[str, ...] = (), **teams: NetworkPolicy) -> Cluster:
    own = tuple(replace(team, network=teams.get(team.name, policy)) for team in GPU.teams)
    return replace(GPU, network=Network(policy, machine_networks), teams=own)


def _rules(cluster: Cluster, role: str = "node") -> str:
    return render_files(cluster, site_of(cluster))[role][RULES].text


def _chain(rules: str, name: str) -> list[str]:
    found = re.search(rf"    chain {name} {{\n(.*?)    }}", rules, re.DOTALL)
    assert found, name
    return [line.strip() for line in found[1].splitlines()]


def test_cluster_that_restricts_no_job_has_no_rules() -> None:
    site = site_of(GPU)
    for files in render_files(GPU, site).values():
        assert {RULES, SCRIPT, path_of(SERVICE)}.isdisjoint(files)
        assert not any(SCRIPT in file.text for file in files.values())
    assert not any(unit.name == SERVICE for units in units_by_role(GPU, site).values() for unit in units)


def test_one_restricted_team_gives_every_machine_the_rules() -> None:
    cluster = _cluster(NetworkPolicy(), vision=NetworkPolicy("user"))
    site = site_of(cluster)
    files = render_files(cluster, site)
    for role, units in units_by_role(cluster, site).items():
        unit = next(unit for unit in units if unit.name == SERVICE)
        assert (SCRIPT in unit.reload_on) == (role == "node")
    assert f"ExecStart={SCRIPT} load\nExecReload={SCRIPT} load\n" in files["node"][path_of(SERVICE)].text
    assert f"ExecStart=/usr/sbin/nft -f {RULES}\n" in files["head"][path_of(SERVICE)].text
    assert f"{SCRIPT} start || exit 1\n" in files["node"][PROLOG].text
    assert f"{SCRIPT} end\n" in files["node"][EPILOG].text


def test_head_numbers_connections_and_refuses_nothing() -> None:
    rules = _rules(_cluster(NetworkPolicy("user", ())), "head")
    assert _chain(rules, "output")[-1] == "ip daddr @machines goto number"
    assert "vmap" not in rules
    assert "hook input" not in rules


def test_sender_without_a_user_is_a_stranger() -> None:
    """The kernel opens some connections in a socket that has no user: a subflow of MPTCP, for one."""
    chain = _chain(_rules(_cluster(NetworkPolicy("user", ()))), "number")
    first = next(line for line in chain if "ip id set" in line)
    assert first == "meta l4proto tcp ip id set 65535"
    output = _chain(_rules(_cluster(NetworkPolicy("user", ()))), "output")
    assert "socket cgroupv2 level @LEVEL@ vmap @job_internet" in output


def test_team_ports_are_open_to_users_of_the_team() -> None:
    rules = _rules(_cluster(NetworkPolicy("user"), speech=NetworkPolicy("team")))
    carol = site_of(GPU).uids["carol"]
    assert f"set users_of_speech {{\n        typeof ip id\n        elements = {{ {carol} }}\n" in rules
    chain = _chain(rules, "ports_speech")
    assert chain[0] == "jump known_senders"
    assert "ip id @users_of_speech accept" in chain
    assert chain[-1] == "goto refuse"
    assert "ports_vision" not in rules


def test_internet_of_a_team_replaces_that_of_the_cluster() -> None:
    listed = NetworkPolicy("all", ("10.1.0.0/16", "10.0.0.0/8", "192.0.2.7"))
    rules = _rules(_cluster(NetworkPolicy("all", ()), speech=listed, vision=NetworkPolicy()))
    assert _chain(rules, "internet") == ["goto refuse"]
    assert _chain(rules, "internet_speech") == ["ip daddr { 10.0.0.0/8, 192.0.2.7/32 } accept", "goto refuse"]
    assert "internet_vision" not in rules


def test_machines_are_known_by_all_their_networks() -> None:
    rules = _rules(_cluster(NetworkPolicy("user"), ("10.20.0.0/16",)))
    addresses = site_of(GPU).addresses
    assert all(addresses[name] in rules for name in GPU.machine_names)
    assert "10.20.0.0/16 }" in rules


def test_script_knows_the_policy_of_each_team() -> None:
    cluster = _cluster(NetworkPolicy("team", ()), speech=NetworkPolicy("all", ("10.0.0.0/8",)), vision=NetworkPolicy())
    text = render_files(cluster, site_of(cluster))["node"][SCRIPT].text
    assert "ports=([-]=user [vision]=all [speech]=all)" in text, "an account that is no team has no users"
    assert "internet=([-]=internet [vision]= [speech]=internet_speech)" in text


@given(st.sets(st.one_of(st.integers(1000, 59_999), st.integers(60_000, 2**32 - 2)), max_size=60))
def test_each_user_has_a_number_that_no_other_has(uids: set[int]) -> None:
    numbers = user_numbers(uids)
    assert set(numbers) == uids
    assert len(set(numbers.values())) == len(uids)
    assert all(0 < number < 65535 for number in numbers.values()), "0 are daemons, 65535 strangers"
    assert all(numbers[uid] == uid for uid in uids if uid < 60_000), "they do not depend on other users"
