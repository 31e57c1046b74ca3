"""The CPUs and the memory that a job gets by default for each GPU and CPU: DefCpuPerGPU, DefMemPerGPU, DefMemPerCPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.render.slurm.hardware.node_hardware import Hardware

_MOST_MIB_PER_CPU = 2048  # on nodes with GPUs, where the memory goes with the GPUs


@dataclass(frozen=True, slots=True)
class DefaultShare:
    """CPUs and memory that a job gets by default for each GPU or CPU, the same on all nodes of a set."""

    cpus_per_gpu: int  # 0 = no GPUs
    memory_mib_per_gpu: int
    memory_mib_per_cpu: int


def smallest_share(nodes: Iterable[Hardware]) -> DefaultShare:
    """Returns the lowest defaults of the nodes, so that a job for all GPUs of a node fits on any node with that many
    GPUs."""
    every = tuple(nodes)
    with_gpus = [node for node in every if node.gpus]
    return DefaultShare(
        min((_cpus_per_gpu(node) for node in with_gpus), default=0),
        min((_memory_mib_per_gpu(node) for node in with_gpus), default=0),
        min(_memory_mib_per_cpu(node) for node in every),
    )


def _cpus_per_gpu(node: Hardware) -> int:
    """Returns equal parts for each GPU or MIG instance, in whole cores, because Slurm allocates whole cores and an odd
    thread would be missing for the last GPU."""
    threads, part = node.sockets[2] if node.sockets else 1, node.cpus // sum(node.gpu_counts.values())
    return max(1, part // threads * threads or part)


def _memory_mib_per_gpu(node: Hardware) -> int:
    """Returns equal parts for each GPU or MIG instance, so that jobs of one GPU without a memory request fill a node."""
    return max(1, node.memory_mib // sum(node.gpu_counts.values()))


def _memory_mib_per_cpu(node: Hardware) -> int:
    """Returns the memory per CPU of a job without GPUs: an equal part on a CPU node, at most half of it on a node with
    GPUs."""
    part = max(1, node.memory_mib // node.cpus)
    return max(1, min(_MOST_MIB_PER_CPU, part // 2)) if node.gpus else part
