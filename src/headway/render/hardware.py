"""What a node has, as slurm.conf must say it: from the plan, and from what the provider found."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.cluster import Cluster, Site

# Kept back on a real machine for the system: what the kernel and daemons take before a job sees it.
_SYSTEM_SHARE = 0.04


@dataclass(frozen=True, slots=True)
class Hardware:
    """One node. `pretended`: the machine has less than the plan says (a local one), and Slurm is told to believe it."""

    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    pretended: bool
    tmp_mib: int = 0  # room for jobs' own /tmp; 0 = nobody knows, and --tmp is refused

    @property
    def cpus_per_gpu(self) -> int:
        return max(1, self.cpus // self.gpus) if self.gpus else 1

    @property
    def memory_mib_per_gpu(self) -> int:
        """An equal part each, so that one-GPU jobs that ask for no memory fill a node side by side."""
        return max(1, self.memory_mib // self.gpus) if self.gpus else 0

    @property
    def memory_mib_per_cpu(self) -> int:
        """For jobs without GPUs: an equal part on a CPU node, little on a GPU node, whose memory is its GPUs' part."""
        part = max(1, self.memory_mib // self.cpus)
        return max(1, min(2048, part // 2)) if self.gpus else part


def hardware(cluster: Cluster, site: Site) -> Hardware:
    """The plan as it is where the machines are pretended; what is left after the system's part where they are real."""
    plan = cluster.plan
    fewer_cpus = 0 < site.real_cpus < plan.cpus
    less_memory = 0 < site.real_memory_mib < plan.memory_mib * 0.9
    pretended = site.simulated_gpus or fewer_cpus or less_memory
    memory = plan.memory_mib
    if not pretended:
        memory = int(min(site.real_memory_mib or memory, memory) * (1 - _SYSTEM_SHARE))
    return Hardware(plan.cpus, memory, plan.gpus, plan.gpu_type, pretended, site.real_tmp_mib)
