"""Faults of the section `cloud`."""

from __future__ import annotations

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.domain.cluster import Cluster
from headway.validation.yaml_parser import parse_yaml

FILE = "name: lab\nprovider: aws\nplan: h100-8\nnodes: 2\ncloud: {region: eu-central-1}\n"


def check(text: str) -> tuple[Cluster | None, list[str]]:
    cluster, found = check_cluster_file(parse_yaml(text), load_catalogue(), owner="ann")
    return cluster, [f"{fault.path}: {fault.message}" for fault in found if fault.level == "error"]


def test_region_is_enough() -> None:
    cluster, faults = check(FILE)
    assert faults == []
    assert cluster is not None
    assert cluster.cloud is not None
    assert (cluster.cloud.region, cluster.cloud.zones, cluster.cloud.public_addresses) == ("eu-central-1", (), True)
    assert cluster.provider.rents_machines


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (FILE.replace("cloud: {region: eu-central-1}\n", ""), "cloud: is missing"),
        (FILE.replace("provider: aws\n", ""), "cloud: needs a provider that rents machines"),
        (FILE.replace("region: eu-central-1", "zones: [a]"), "cloud.region: is missing"),
        (FILE.replace("eu-central-1}", "eu-central-1, network: 10.0.0.0/28}"), "cloud.network: is 10.0.0.0/28"),
        (FILE.replace("eu-central-1}", "eu-central-1, lease: 10}"), "cloud.lease: is less than half an hour"),
        (FILE.replace("eu-central-1}", "eu-central-1, lease: infinite}"), "cloud.lease: is infinite"),
        (FILE.replace("eu-central-1}", "eu-central-1, external_network: a}"), "cloud.external_network: is given"),
        (FILE + "hosts: [10.0.0.1]\n", "hosts: needs provider ssh"),
    ],
)
def test_faults_name_field_and_remedy(text: str, fault: str) -> None:
    cluster, faults = check(text)
    assert cluster is None
    assert [found for found in faults if found.startswith(fault)], faults


def test_plan_without_instance_type_is_refused_unless_one_is_named() -> None:
    mine = "mine: {cpus: 8, memory_mib: 32768}\n"
    catalogue = load_catalogue(parse_yaml(mine))
    text = FILE.replace("h100-8", "mine")
    _, found = check_cluster_file(parse_yaml(text), catalogue, owner="ann")
    assert [fault.message for fault in found if fault.path == "plan"] == ["has no instance type of aws"]
    text = text.replace("eu-central-1}", "eu-central-1, types: {mine: [m7i.2xlarge]}}")
    cluster, found = check_cluster_file(parse_yaml(text), catalogue, owner="ann")
    assert cluster is not None
    assert [fault for fault in found if fault.level == "error"] == []


OPENSTACK = """\
name: lab
provider: openstack
groups: {own: {plan: h100-8, nodes: 1}}
cloud: {region: RegionOne, types: {h100-8: [gpu.h100x8]}, head_types: [head.4], external_network: public}
"""


def test_openstack_needs_the_names_of_its_flavors_and_has_no_spot_machines() -> None:
    cluster, faults = check(OPENSTACK)
    assert faults == []
    assert cluster is not None
    assert cluster.cloud is not None
    assert (cluster.cloud.types["h100-8"], cluster.cloud.external_network) == (("gpu.h100x8",), "public")
    assert check(OPENSTACK.replace("types: {h100-8: [gpu.h100x8]}, head_types: [head.4], ", ""))[1] == [
        "groups.own.plan: has no instance type of openstack", "cloud.head_types: is missing"
    ]  # fmt: skip
    spot = check(OPENSTACK.replace("nodes: 1", "nodes: 1, spot: true"))[1]
    assert spot == ["groups.own.spot: is true, and openstack has no spot machines"]
