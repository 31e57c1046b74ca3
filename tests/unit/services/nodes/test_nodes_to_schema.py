"""The list of a cluster's nodes shows their GPUs as Slurm counts them, and the hosts of containers."""

from __future__ import annotations

from dataclasses import replace

from headway.catalog.mig_profiles import lay_out
from headway.domain.cluster import Host
from headway.domain.machines.gpu_parts import GpuParts
from headway.services.nodes.nodes_to_schema import node_outs
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders


def test_nodes_show_their_mig_instances_in_slurms_order() -> None:
    parts = GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 1, "1g.10gb": 2}))
    cluster = builders.cluster(2, 0, parts=parts)
    divided = replace(builders.node("lab-1-1"), gpus=24, gpu_types=("3g.40gb", "1g.10gb"))
    not_yet = replace(builders.node("lab-1-2"), gpus=8, gpu_types=("h100",))
    machines = tuple(builders.machine(name) for name in cluster.machine_names)
    snapshot = Snapshot("lab", nodes=(divided, not_yet), machines=machines, as_of=1.0)
    _, first, second = node_outs(cluster, snapshot)
    assert first.gpu_parts == "1 x 3g.40gb + 2 x 1g.10gb"
    assert [(one.gpu, one.part) for one in first.gpus][6:12] == [
        (6, "3g.40gb"), (7, "3g.40gb"), (0, "1g.10gb"), (0, "1g.10gb"), (1, "1g.10gb"), (1, "1g.10gb"),
    ]  # fmt: skip
    assert (second.gpu_parts, len(second.gpus), second.gpus[0].part) == ("", 8, "")


def test_machine_in_a_container_names_its_host() -> None:
    cluster = builders.cluster(2, 0)
    cluster = replace(cluster, hosts=(Host("lab-1-2", "rack7.example.org"),))
    inside = [replace(builders.machine(name), port=2222, host=builders.machine(name)) for name in cluster.slot_names]
    snapshot = Snapshot("lab", machines=(builders.machine("lab-head"), *inside), as_of=1.0)
    head, first, second = node_outs(cluster, snapshot)
    assert (head.host, first.host, second.host) == ("", inside[0].address, "rack7.example.org")
