"""The hardware of a node as Slurm is given it."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.machines.survey import DetectedHardware
from headway.render.files_by_role import render_files
from headway.render.slurm import conf_syntax
from headway.render.slurm.hardware.node_hardware import distinct_hardware, hardware_of
from tests.support.clusters.render_cases import cpu_cluster, gpu_cluster, site_of, slurm_conf

GPU = gpu_cluster()


def one(text: str, kind: str) -> conf_syntax.ConfLine:
    return next(line for line in conf_syntax.parse_lines(text) if line.first == kind)


def test_eight_single_gpu_jobs_fit_one_node() -> None:
    text = slurm_conf(GPU)
    found, node = conf_syntax.settings(conf_syntax.parse_lines(text)), one(text, "nodename")
    assert 8 * int(found["defmempergpu"]) <= int(node.get("RealMemory") or 0)
    assert 8 * int(found["defcpupergpu"]) <= int(node.get("CPUs") or 0)


def test_whole_node_billing_equals_its_gpus() -> None:
    weights = dict(
        word.split("=") for word in (one(slurm_conf(GPU), "partitionname").get("TRESBillingWeights") or "").split(",")
    )
    node = one(slurm_conf(GPU), "nodename")
    gib = int(node.get("RealMemory") or 0) / 1024
    assert int(float(weights["Mem"].removesuffix("G")) * gib) == 8000
    assert int(float(weights["CPU"]) * int(node.get("CPUs") or 0)) == 8000


def test_tmpdisk_is_set_only_when_known() -> None:
    assert one(slurm_conf(GPU, site_of(GPU, real_tmp_mib=5000)), "nodename").get("TmpDisk") == "5000"
    assert one(slurm_conf(GPU), "nodename").get("TmpDisk") is None


def test_only_real_cores_are_pinned() -> None:
    local = render_files(GPU, site_of(GPU))["head"]
    real = render_files(cpu_cluster(), site_of(cpu_cluster(), real_cpus=64, real_memory_mib=260_000))["head"]
    assert "ConstrainCores=no" in local["/etc/slurm/cgroup.conf"].text
    assert (
        conf_syntax.settings(conf_syntax.parse_lines(local["/etc/slurm/slurm.conf"].text))["taskplugin"]
        == "task/cgroup"
    )
    assert "ConstrainCores=yes" in real["/etc/slurm/cgroup.conf"].text
    assert "task/affinity" in real["/etc/slurm/slurm.conf"].text
    assert "config_overrides" not in real["/etc/slurm/slurm.conf"].text


def test_real_node_advertises_less_memory_than_it_has() -> None:
    cluster = cpu_cluster()
    node = hardware_of(cluster, site_of(cluster, real_cpus=64, real_memory_mib=250_000), cluster.slot_names[0])
    assert not node.pretended
    assert node.memory_mib < 250_000


def test_node_of_an_autoscaled_group_is_as_its_plan_says_whatever_machine_it_has() -> None:
    """A job that waits for the machine would end when the node's cores change."""
    cluster = cpu_cluster()
    name, *others = cluster.slot_names
    found = DetectedHardware(48, 2, 24, 1, 100_000)
    site = site_of(cluster, real_cpus=64, real_memory_mib=250_000)
    there, group = replace(site, found={name: found}), cluster.groups[0]
    scaled = replace(cluster, groups=(replace(group, nodes=0, idle_s=600),))
    assert hardware_of(cluster, there, name).cpus == 48
    assert hardware_of(scaled, there, name) == hardware_of(scaled, site, name)
    assert distinct_hardware(cluster, there, (name, *others)) == (hardware_of(cluster, there, name),)
    assert distinct_hardware(scaled, there, (name, *others)) == (hardware_of(scaled, site, name),)
