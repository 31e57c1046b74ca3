"""Groups of a cluster of owned machines may be rented from a cloud."""

from __future__ import annotations

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS, SSH
from headway.clusterfile.load import check_cluster_file
from headway.domain.cluster import Cluster
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
MIXED = """\
name: lab
provider: ssh
hosts: [10.0.0.1, 10.0.0.2, 10.0.0.3]
groups:
  more: {provider: aws, plan: cpu-64, max: 3, idle: 10}
  own: {plan: cpu-64, nodes: 2}
cloud: {region: us-east-1}
"""


def checked(text: str) -> tuple[Cluster | None, list[str]]:
    cluster, found = check_cluster_file(parse_yaml(text), CATALOGUE, owner="ann")
    return cluster, [fault.path for fault in found if fault.level == "error"]


def test_hosts_are_those_of_the_head_and_of_the_groups_without_a_provider() -> None:
    cluster, faults = checked(MIXED)
    assert cluster is not None, faults
    assert [host.name for host in cluster.hosts] == ["lab-head", "lab-own-1-1", "lab-own-1-2"]
    assert cluster.provider_of("lab-head") is cluster.provider_of("lab-own-1-2") is SSH
    assert cluster.provider_of("lab-more-1-1") is AWS
    assert cluster.rents_machines


def test_rented_group_can_be_emptied_before_it_is_removed() -> None:
    cluster, faults = checked(MIXED.replace("max: 3, idle: 10", "nodes: 0, max: 3"))
    assert cluster is not None, faults
    assert cluster.rents_machines
    assert cluster.provider_of("lab-more-1-1") is AWS


def test_rented_group_needs_a_cloud_and_owned_machines() -> None:
    assert checked(MIXED.replace("cloud: {region: us-east-1}\n", ""))[1] == ["cloud"]
    assert "hosts" in checked(MIXED.replace(", 10.0.0.3", ""))[1]
    local = MIXED.replace("provider: ssh\nhosts: [10.0.0.1, 10.0.0.2, 10.0.0.3]\n", "")
    assert checked(local)[1] == ["groups.more.provider"]
    assert checked(f"{local}provider: aws\n")[1] == ["groups.more.provider"]
    assert checked(MIXED.replace("plan: cpu-64, max", "plan: cpu-32, max"))[1] != []
