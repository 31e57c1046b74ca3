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
