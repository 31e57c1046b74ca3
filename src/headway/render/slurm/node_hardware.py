"""The hardware of a node as slurm.conf states it: from the plan, the provider, or a survey of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.domain.cluster import Cluster, Plan, Site
from headway.domain.survey import DetectedHardware

# Kept back on a real machine for the system: what the kernel and daemons take before a job sees it.
_SYSTEM_SHARE = 0.04
_MEMORY_STEP_MIB = 64  # a kernel's update takes a little memory more or less
_MODEL = re.compile(r"\b([A-Z]{1,3}[0-9]{1,4}[A-Za-z]{0,2})\b")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one type that are beside the same cores of a machine one owns."""

    minors: tuple[int, ...]  # N of /dev/nvidiaN
    cores: tuple[int, ...] = ()  # as Slurm counts them; () = all alike


@dataclass(frozen=True, slots=True)
class Hardware:
    """One node. `pretended`: the machine has less than the plan says (a local one), and Slurm is told to believe it."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    pretended: bool
    tmp_mib: int = 0  # room for jobs' own /tmp; 0 = nobody knows, and --tmp is refused
    sockets: tuple[int, int, int] | None = None  # sockets, cores each, threads each; None = Slurm may guess
    places: tuple[Gpus, ...] = ()  # which device files; () = the first ones

    @property
    def cpus_per_gpu(self) -> int:
        """An equal part each, of whole cores: Slurm gives nothing less, so an odd thread would be missed by the last GPU."""
        if not self.gpus:
            return 1
        threads, part = self.sockets[2] if self.sockets else 1, self.cpus // self.gpus
        return max(1, part // threads * threads or part)

    @property
    def memory_mib_per_gpu(self) -> int:
        """An equal part each, so that one-GPU jobs that ask for no memory fill a node side by side."""
        return max(1, self.memory_mib // self.gpus) if self.gpus else 0

    @property
    def memory_mib_per_cpu(self) -> int:
        """For jobs without GPUs: an equal part on a CPU node, little on a GPU node, whose memory is its GPUs' part."""
        part = max(1, self.memory_mib // self.cpus)
        return max(1, min(2048, part // 2)) if self.gpus else part


@dataclass(frozen=True, slots=True)
class Share:
    """What a GPU or a CPU brings a job that says no more, whichever of some nodes it comes to."""

    cpus_per_gpu: int  # 0 = no GPUs there
    memory_mib_per_gpu: int
    memory_mib_per_cpu: int


def smallest_gpu_share(nodes: Iterable[Hardware]) -> Share:
    """The least of them in each thing, so that a job for all GPUs of a node fits on any that has so many."""
    every = tuple(nodes)
    with_gpus = [node for node in every if node.gpus]
    return Share(
        min((node.cpus_per_gpu for node in with_gpus), default=0),
        min((node.memory_mib_per_gpu for node in with_gpus), default=0),
        min(node.memory_mib_per_cpu for node in every),
    )


def distinct_hardware(cluster: Cluster, site: Site, names: Sequence[str]) -> tuple[Hardware, ...]:
    """What these nodes have, each kind once. Of machines one owns those that were found, where any was."""
    known = [name for name in names if name in site.found] or names
    return tuple(dict.fromkeys(hardware_of(cluster, site, name) for name in known))


def hardware_of(cluster: Cluster, site: Site, name: str) -> Hardware:
    """Of one node, by its slot's name."""
    found, plan = site.found.get(name), cluster.group_of[name].plan
    return _really(plan, found) if found else _of(plan, site)


def hardware_is_simulated(cluster: Cluster, site: Site) -> bool:
    """Whether any node has less than is said of it."""
    return not site.found and any(_of(group.plan, site).pretended for group in cluster.groups)


def _of(plan: Plan, site: Site) -> Hardware:
    """The plan as it is where the machines are pretended; what is left after the system's part where they are real."""
    fewer_cpus = 0 < site.real_cpus < plan.cpus
    less_memory = 0 < site.real_memory_mib < plan.memory_mib * 0.9
    pretends = site.simulated_gpus or fewer_cpus or less_memory
    memory = plan.memory_mib
    if not pretends:
        memory = int(min(site.real_memory_mib or memory, memory) * (1 - _SYSTEM_SHARE))
    return Hardware(plan.cpus, memory, plan.gpus, plan.gpu_type, pretends, site.real_tmp_mib)


def _really(plan: Plan, found: DetectedHardware) -> Hardware:
    memory = int(found.memory_mib * (1 - _SYSTEM_SHARE)) // _MEMORY_STEP_MIB * _MEMORY_STEP_MIB
    gpus = found.usable_gpus
    # Cores of two kinds, or some of them kept from Slurm: it takes no such count of sockets, nor a core's number then.
    packages, cores, threads = found.topology
    even = found.cpus in (packages, packages * cores, packages * cores * threads)
    places: dict[tuple[int, ...], list[int]] = {}
    for gpu in gpus:
        places.setdefault(gpu.cores if even else (), []).append(gpu.minor)
    return Hardware(
        cpus=found.cpus,
        memory_mib=max(1, memory),
        gpus=len(gpus),
        gpu_type=gpu_type(plan, gpus[0].product) if gpus else "",
        pretended=False,
        tmp_mib=found.tmp_mib,
        sockets=found.topology if even else None,
        places=tuple(Gpus(tuple(sorted(minors)), cores) for cores, minors in places.items()),
    )


def gpu_type(plan: Plan, product: str) -> str:
    """What jobs call a GPU that names itself so: the plan's word where it is the plan's GPU, else its model."""
    if plan.gpu_type and (product == plan.gpu_product or plan.gpu_type in product.lower()):
        return plan.gpu_type
    model = _MODEL.search(product.removeprefix("NVIDIA ").replace("-", " "))
    text = model[1] if model else product.removeprefix("NVIDIA ")
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:16] or "gpu"
