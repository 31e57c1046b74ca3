"""Parts of a GPU that jobs hold instead of whole GPUs: MIG instances, shards, or a percentage through MPS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

_COMPUTE_SLICES = 7  # compute slices of a GPU with MIG, except the A30, which has 4
_OF_A30 = frozenset(("1g.6gb", "2g.12gb", "4g.24gb"))  # no other GPU has profiles of these names
MPS_PER_GPU = 100  # gres/mps is a percentage of a GPU
MIG_TYPE = re.compile(r"^([1-7])g\.([1-9][0-9]{0,2})gb$")


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG instance of a GPU. Slurm and jobs know it by its profile, as type of `gres/gpu`."""

    profile: str  # "3g.71gb"
    start: int  # its first memory slice
    size: int  # number of memory slices
    compute: int  # number of compute slices
    memory_mib: int
    whole: int = 8  # memory slices of the whole GPU

    @property
    def gpu_instance(self) -> int:
        """Number that the driver gives to a GPU instance at this place: they are counted from the largest places to
        the smallest, so the whole GPU is 0, its halves are 1 and 2, and its quarters 3 to 6."""
        return self.whole // self.size - 1 + self.start // self.size

    def device_files(self, gpu: int) -> tuple[str, ...]:
        """Returns the device files that a job needs for this instance of GPU `gpu`: those of the GPU, of the GPU
        instance, and of its only compute instance. Minor numbers are counted as in
        /proc/driver/nvidia-caps/mig-minors: 9 for each of 15 GPU instances of a GPU, from 3."""
        minor = 3 + 15 * 9 * gpu + 9 * self.gpu_instance
        return f"/dev/nvidia{gpu}", f"{CAPS}/nvidia-cap{minor}", f"{CAPS}/nvidia-cap{minor + 1}"


CAPS = "/dev/nvidia-caps"


@dataclass(frozen=True, slots=True)
class GpuParts:
    """How each GPU of a node is shared by jobs. At most one of the fields is set; none means whole GPUs."""

    mig: tuple[MigInstance, ...] = ()  # by place
    shards: int = 0  # number of shards of a GPU
    mps: bool = False

    def __bool__(self) -> bool:
        return bool(self.mig or self.shards or self.mps)

    @property
    def counts(self) -> dict[str, int]:
        """Number of MIG instances of a GPU by profile, largest first."""
        found: dict[str, int] = {}
        for one in sorted(self.mig, key=lambda one: (-one.compute, -one.size)):
            found[one.profile] = found.get(one.profile, 0) + 1
        return found

    @property
    def units_per_gpu(self) -> int:
        """Equal units in which use of a GPU is counted: compute slices, shards, per cent, or the GPU itself."""
        if self.mig:
            return compute_slices(self.mig[0].profile)
        return self.shards or (MPS_PER_GPU if self.mps else 1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts, as limits of teams have them: MIG profiles, "shard", "mps"."""
        return (*self.counts, *(("shard",) if self.shards else ()), *(("mps",) if self.mps else ()))

    @property
    def description(self) -> str:
        """Says what a GPU is divided into: "2 x 3g.71gb", "8 shards", "per cent by MPS", "whole GPUs"."""
        if self.mig:
            return " + ".join(f"{count} x {profile}" for profile, count in self.counts.items())
        if self.shards:
            return f"{self.shards} shards"
        return "per cent by MPS" if self.mps else "whole GPUs"


WHOLE = GpuParts()


def compute_slices(profile: str) -> int:
    """Returns the number of compute slices of the GPU that has MIG instances of this profile."""
    return 4 if profile in _OF_A30 else _COMPUTE_SLICES


def gpus_worth(tres: Mapping[str, int]) -> Fraction:
    """Returns the GPUs that the counts of `gres/gpu` and `gres/gpu:TYPE` are worth. A MIG instance counts as its share of
    the compute slices; GPUs without a type count as whole ones."""
    typed = {name.partition(":")[2]: count for name, count in tres.items() if name.startswith("gres/gpu:")}
    worth = sum((count * share_of_type(name) for name, count in typed.items()), Fraction(0))
    return worth + max(0, tres.get("gres/gpu", 0) - sum(typed.values()))


def tres_of_part(part: str) -> str:
    """Returns Slurm's name of a MIG profile, "shard" or "mps"."""
    return f"gres/{part}" if part in ("shard", "mps") else f"gres/gpu:{part}"


def share_of_type(gpu_type: str) -> Fraction:
    """Returns the GPUs that one of `gres/gpu:TYPE` is worth: less than 1 for the profile of a MIG instance."""
    found = MIG_TYPE.match(gpu_type)
    return Fraction(int(found[1]), compute_slices(gpu_type)) if found else Fraction(1)


def mig_profiles(names: Iterable[str]) -> list[str]:
    """Returns those of the GPU types that are MIG profiles."""
    return [name for name in names if MIG_TYPE.match(name)]
