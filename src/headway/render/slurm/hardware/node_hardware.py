"""The hardware of a node as written to slurm.conf, from the plan, the provider, or a survey of the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.domain.cluster import Cluster, Plan
from headway.domain.machines.gpu_parts import MPS_PER_GPU, WHOLE, GpuParts
from headway.domain.machines.site import Site
from headway.domain.machines.survey import DetectedHardware

# Share of a real machine's memory that is reserved for the kernel and daemons.
_SYSTEM_SHARE = 0.04
_MEMORY_STEP_MIB = 64  # rounding, because a kernel update changes the memory size a little
_MODEL = re.compile(r"\b([A-Z]{1,3}[0-9]{1,4}[A-Za-z]{0,2})\b")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of one type that are next to the same cores of an owned machine."""

    minors: tuple[int, ...]  # N of /dev/nvidiaN
    cores: tuple[int, ...] = ()  # numbered as Slurm does; () = no preference


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware of one node. `pretended`: the (local) machine has less than the plan says, and Slurm is configured to
    accept that."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    pretended: bool
    tmp_mib: int = 0  # space for the jobs' private /tmp; 0 = unknown, and --tmp is refused
    sockets: tuple[int, int, int] | None = None  # sockets, cores per socket, threads per core; None = Slurm guesses
    places: tuple[Gpus, ...] = ()  # device files of the GPUs; () = the first ones
    parts: GpuParts = WHOLE  # how jobs share each GPU

    @property
    def gpu_counts(self) -> dict[str, int]:
        """Number of `gres/gpu` by type: GPUs, or MIG instances."""
        if not self.gpus:
            return {}
        if self.parts.mig:
            return {profile: count * self.gpus for profile, count in self.parts.counts.items()}
        return {self.gpu_type: self.gpus}

    @property
    def gres(self) -> str:
        """The node's Gres as in slurm.conf; "" without GPUs."""
        found = [f"gpu:{gpu_type}:{count}" for gpu_type, count in self.gpu_counts.items()]
        if self.parts.shards and self.gpus:
            found.append(f"shard:{self.parts.shards * self.gpus}")
        if self.parts.mps and self.gpus:
            found.append(f"mps:{MPS_PER_GPU * self.gpus}")
        return ",".join(found)


def distinct_hardware(cluster: Cluster, site: Site, names: Sequence[str]) -> tuple[Hardware, ...]:
    """Returns the distinct hardware of these nodes. Of owned machines only surveyed ones count, if there are any, and those of
    autoscaled groups."""
    scaled = {name for name in names if site.found and cluster.group_of[name].idle_s is not None}
    known = [name for name in names if name in site.found or name in scaled] or names
    return tuple(dict.fromkeys(hardware_of(cluster, site, name) for name in known))


def hardware_of(cluster: Cluster, site: Site, name: str) -> Hardware:
    """Returns the hardware of one node, by the name of its slot. A slot of an autoscaled group has that of its plan, whatever
    its present machine has: Slurm ends jobs on nodes whose cores change, and the next machine may be of another type."""
    group = cluster.group_of[name]
    found = site.found.get(name) if group.idle_s is None else None
    hardware = _really(group.plan, found) if found else _of(group.plan, site)
    return replace(hardware, parts=site.parts_now.get(name, group.parts)) if hardware.gpus else hardware


def hardware_is_simulated(cluster: Cluster, site: Site) -> bool:
    """Returns whether any node has less than its plan says."""
    return not site.found and any(_of(group.plan, site).pretended for group in cluster.groups)


def _of(plan: Plan, site: Site) -> Hardware:
    """Returns the plan's hardware where machines only pretend to have it; on real machines the system's share of memory
    is subtracted."""
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
    # If cores differ in kind or some are reserved from Slurm, Slurm accepts neither the count of sockets nor core
    # numbers.
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
    """Returns the GPU type that jobs use for a product name: the plan's type if it is the plan's GPU, else the model."""
    if plan.gpu_type and (product == plan.gpu_product or plan.gpu_type in product.lower()):
        return plan.gpu_type
    model = _MODEL.search(product.removeprefix("NVIDIA ").replace("-", " "))
    text = model[1] if model else product.removeprefix("NVIDIA ")
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:16] or "gpu"
