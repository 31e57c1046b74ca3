"""DefCpuPerGPU, DefMemPerGPU and TRESBillingWeights let a whole-node GPU job fit on every node of a partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.domain.machines.survey import DetectedGpu, DetectedHardware
from headway.domain.slurm.hostlist import expand
from headway.domain.teams import UserLimits
from headway.render.slurm import conf_syntax
from headway.render.slurm.slurm_conf import slurm_conf
from headway.validation.yaml_parser import parse_yaml
from tests.support.clusters.render_cases import own_gpu_cluster, own_site, site_of

A100S = tuple(DetectedGpu("NVIDIA A100-SXM4-80GB", 81920, f"0000:{n}b:00.0", (), n) for n in range(8))
GROUPS = """
groups:
  gpu: {plan: h100-8, nodes: 1}
  old: {plan: a100-8, nodes: 1}
  inf: {plan: l40s-4, nodes: 1}
  cpu: {plan: cpu-64, nodes: 1}
partitions: {whole: {}, inf: {groups: [inf]}, cpu: {groups: [cpu]}, small: {groups: [inf, old]}}
"""


def mixed() -> tuple[Cluster, Site]:
    cluster, _ = resolve_cluster_file({"name": "lab", **parse_yaml(GROUPS)}, load_catalogue({}), owner="ann")
    return cluster, site_of(cluster, departed=())


def own(*found: DetectedHardware) -> tuple[Cluster, Site]:
    cluster = replace(own_gpu_cluster(), slurm={})
    return cluster, own_site(cluster, found=dict(zip(cluster.slot_names, found, strict=True)))


UNEQUAL = own(
    DetectedHardware(224, 2, 56, 2, 1_000_000, 0, A100S), DetectedHardware(128, 2, 32, 2, 1_010_000, 0, A100S)
)
ODD = own(*[DetectedHardware(88, 2, 22, 2, 500_000, 0, A100S)] * 2)


def parts(world: tuple[Cluster, Site]) -> dict[str, tuple[dict[str, str], list[dict[str, str]]]]:
    """Partition -> its settings over the cluster's, and the lines of its nodes."""
    cluster, site = world
    lines = conf_syntax.parse_lines(slurm_conf(cluster, site))
    nodes = {line.pairs[0][1]: dict(line.pairs) for line in lines if line.first == "nodename"}
    by_name = {partition.name: partition for partition in cluster.partitions}
    found = {}
    for line in lines:
        if line.first == "partitionname":
            said = {**conf_syntax.settings(lines), **{key.lower(): value for key, value in line.pairs}}
            mine = [node for names, node in nodes.items() if {*expand(names)} & {*by_name[line.pairs[0][1]].nodes}]
            found[line.pairs[0][1]] = said, mine
    return found


@pytest.mark.parametrize("world", [mixed(), UNEQUAL, ODD], ids=["groups", "unequal", "odd"])
def test_whole_node_gpu_job_fits_and_is_billed_by_gpus(world: tuple[Cluster, Site]) -> None:
    seen = 0
    for name, (said, nodes) in parts(world).items():
        assert nodes, name
        weights = dict(word.split("=") for word in said["tresbillingweights"].split(","))
        for node in nodes:
            gib = int(node["RealMemory"]) / 1024
            whole = max(float(weights["CPU"]) * int(node["CPUs"]), float(weights["Mem"].removesuffix("G")) * gib)
            gpus = int(node["Gres"].split(":")[2]) if "Gres" in node else 0
            assert gpus * int(said["defcpupergpu"]) <= int(node["CPUs"]), (name, node)
            assert gpus * int(said["defmempergpu"]) <= int(node["RealMemory"]), (name, node)
            assert int(node["CPUs"]) * int(said["defmempercpu"]) <= int(node["RealMemory"]), (name, node)
            assert int(whole) <= gpus * 1000 or not gpus, (name, node)
            seen += gpus
    assert seen


def test_uniform_partition_uses_share_of_its_own_node_type() -> None:
    said = {name: settings for name, (settings, _) in parts(mixed()).items()}
    (node,) = parts(mixed())["inf"][1]
    assert int(said["inf"]["defcpupergpu"]) == int(node["CPUs"]) // 4 > int(said["small"]["defcpupergpu"])
    assert int(said["inf"]["defmempergpu"]) == int(node["RealMemory"]) // 4 > int(said["whole"]["defmempergpu"])
    assert int(said["cpu"]["defmempercpu"]) > int(said["whole"]["defmempercpu"])


def test_mixed_partition_uses_smallest_cpu_and_memory_share() -> None:
    said, nodes = parts(UNEQUAL)["train"]
    assert said["defcpupergpu"] == str(128 // 8)
    assert said["defmempergpu"] == str(min(int(node["RealMemory"]) for node in nodes) // 8)


def test_cpus_per_gpu_are_whole_cores() -> None:
    """Of 44 cores with two threads each 11 threads a GPU would take 6 cores: seven GPUs, and none for the eighth."""
    assert parts(ODD)["train"][0]["defcpupergpu"] == "10"
    few = own(*[DetectedHardware(4, 1, 2, 2, 500_000, 0, A100S)] * 2)
    assert parts(few)["train"][0]["defcpupergpu"] == "1"


def test_partition_with_limits_names_its_qos() -> None:
    cluster, site = mixed()
    whole, *others = cluster.partitions
    limited = replace(cluster, partitions=(whole, replace(whole, name="debug", per_user=UserLimits(gpus=4)), *others))
    said = {name: settings for name, (settings, _) in parts((limited, site)).items()}
    assert said["debug"]["qos"] == "partition.debug"
    assert "qos" not in said["whole"]


def test_groups_have_features_and_weights_of_their_own() -> None:
    text = "groups: {old: {plan: a100-8, nodes: 1, features: [sxm4, bigmem], weight: 7}, new: {plan: h100-8, nodes: 1}}"
    cluster, _ = resolve_cluster_file({"name": "lab", **parse_yaml(text)}, load_catalogue({}), owner="ann")
    lines = conf_syntax.parse_lines(slurm_conf(cluster, site_of(cluster, departed=())))
    old, new = (line for line in lines if line.first == "nodename")
    assert (old.get("Feature"), old.get("Weight")) == ("old,a100-8,old-leaf1,sxm4,bigmem", "7")
    assert new.get("Weight") == "2393"


def test_only_group_may_have_a_weight() -> None:
    text = "groups: {old: {plan: a100-8, nodes: 1, weight: 7}}"
    cluster, _ = resolve_cluster_file({"name": "lab", **parse_yaml(text)}, load_catalogue({}), owner="ann")
    lines = conf_syntax.parse_lines(slurm_conf(cluster, site_of(cluster, departed=())))
    assert [line.get("Weight") for line in lines if line.first == "nodename"] == ["7"]
