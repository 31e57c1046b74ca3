"""gres.conf: the GPUs of each node, and the list of simulated ones."""

from __future__ import annotations

import json

from headway.domain.cluster import Cluster, Plan, Site
from headway.domain.slurm.hostlist import compress, compress_numbers
from headway.render.escaping import MARK, slurm_text
from headway.render.slurm.conf_syntax import Line
from headway.render.slurm.node_hardware import Gpus, Hardware, hardware_of


def gres_conf(cluster: Cluster, site: Site) -> str:
    """Returns gres.conf: the device files of the GPUs in slurm.conf, and the cores next to them."""
    alike: dict[tuple[str, tuple[Gpus, ...]], list[str]] = {}
    for name in cluster.slot_names:
        node = hardware_of(cluster, site, name)
        if node.gpus:
            alike.setdefault((node.gpu_type, _places(node)), []).append(name)
    why = Line(comment="The flag makes Slurm set CUDA_VISIBLE_DEVICES; without it CUDA finds no GPU.")
    lines = [Line(comment=MARK), why]
    for (gpu_type, places), names in alike.items():
        for gpus in places:
            files = compress(f"/dev/nvidia{minor}" for minor in gpus.minors)
            pairs = [("NodeName", compress(names)), ("Name", "gpu"), ("Type", gpu_type), ("File", files)]
            if gpus.cores:
                pairs.append(("Cores", compress_numbers(gpus.cores)))
            lines.append(Line((*pairs, ("Flags", "nvidia_gpu_env"))))
    return slurm_text(lines, "gres.conf")


def _places(node: Hardware) -> tuple[Gpus, ...]:
    return node.places or (Gpus(tuple(range(node.gpus))),)


def simulated_gpus(plan: Plan) -> str:
    """Returns the data that nvidia-smi of local machines shows. JSON allows no comments."""
    shown = {"product": plan.gpu_product, "memory_mib": plan.gpu_memory_mib, "count": plan.gpus}
    return json.dumps(shown) + "\n"
