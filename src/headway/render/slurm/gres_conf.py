"""gres.conf: the GPUs of each node and their parts."""

from __future__ import annotations

from collections.abc import Iterator

from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import MPS_PER_GPU
from headway.domain.machines.site import Site
from headway.domain.slurm.hostlist import compress, compress_numbers
from headway.render.escaping import MARK, slurm_text
from headway.render.slurm.conf_syntax import ConfLine
from headway.render.slurm.hardware.node_hardware import Gpus, Hardware, hardware_of

_FLAGS = ("Flags", "nvidia_gpu_env")


def gres_conf(cluster: Cluster, site: Site) -> str:
    """Returns gres.conf: the device files of the GPUs in slurm.conf, and the cores next to them."""
    alike: dict[Hardware, list[str]] = {}
    for name in cluster.slot_names:
        node = hardware_of(cluster, site, name)
        if node.gpus:
            alike.setdefault(_gpus_only(node), []).append(name)
    lines = [
        ConfLine(comment=MARK),
        ConfLine(comment="The flag makes Slurm set CUDA_VISIBLE_DEVICES; without it CUDA finds no GPU."),
    ]
    if any(node.parts.mig for node in alike):
        lines.append(ConfLine(comment="A MIG instance needs the files of its GPU, GPU instance and compute instance."))
    for node, names in alike.items():
        for gpus in node.places or (Gpus(tuple(range(node.gpus))),):
            lines += _lines(compress(names), node, gpus)
    return slurm_text(lines, "gres.conf")


def _gpus_only(node: Hardware) -> Hardware:
    """Returns what gres.conf says of a node, so that nodes with the same GPUs share lines."""
    return Hardware(0, 0, node.gpus, node.gpu_type, False, places=node.places, parts=node.parts)


def _lines(names: str, node: Hardware, gpus: Gpus) -> Iterator[ConfLine]:
    cores = [("Cores", compress_numbers(gpus.cores))] if gpus.cores else []
    # In the order in which Slurm numbers the instances of a node: by type as in slurm.conf, then by line.
    for profile in node.parts.counts:
        for minor in gpus.minors:
            for one in node.parts.mig:
                if one.profile == profile:
                    files = ("MultipleFiles", ",".join(one.device_files(minor)))
                    yield ConfLine((("NodeName", names), ("Name", "gpu"), ("Type", profile), files, *cores, _FLAGS))
    if node.parts.mig:
        return
    file = ("File", compress(f"/dev/nvidia{minor}" for minor in gpus.minors))
    yield ConfLine((("NodeName", names), ("Name", "gpu"), ("Type", node.gpu_type), file, *cores, _FLAGS))
    for gres, each in (("shard", node.parts.shards), ("mps", MPS_PER_GPU if node.parts.mps else 0)):
        if each:
            count = ("Count", str(each * len(gpus.minors)))
            yield ConfLine((("NodeName", names), ("Name", gres), count, file, *cores))
