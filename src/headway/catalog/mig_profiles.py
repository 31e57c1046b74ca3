"""MIG profiles by GPU: the sizes of MIG instances, and where in the GPU's memory they may lie (NVIDIA's MIG user guide)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headway.domain.cluster import Plan
from headway.domain.machines.gpu_parts import MigInstance, compute_slices

# Name of the profile without its memory -> compute slices, memory slices, first memory slices that it may have
_SHAPES = {
    "1g": (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    "1g+": (1, 2, (0, 2, 4, 6)),  # one compute slice with twice the memory
    "2g": (2, 2, (0, 2, 4)),
    "3g": (3, 4, (0, 4)),
    "4g": (4, 4, (0,)),
    "7g": (7, 8, (0,)),
}
# The A30 has 4 compute slices and 4 memory slices.
_A30, _A30_SHAPES, _A30_GB = (
    "a30",
    {"1g": (1, 1, (0, 1, 2, 3)), "2g": (2, 2, (0, 2)), "4g": (4, 4, (0,))},
    {"1g": 6, "2g": 12, "4g": 24},
)
# GPU type, memory of the GPU up to this many MiB -> GB in the names of 1g, 1g+ and 2g, 3g and 4g, 7g
_MEMORY_NAMES = (
    ("a100", 45_000, (5, 10, 20, 40)),
    ("a100", 90_000, (10, 20, 40, 80)),
    ("h100", 85_000, (10, 20, 40, 80)),
    ("h100", 97_000, (12, 24, 47, 94)),
    ("h200", 150_000, (18, 35, 71, 141)),
    ("b200", 190_000, (23, 45, 90, 180)),
)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size of MIG instance of one GPU model."""

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]


def profiles_of(plan: Plan) -> dict[str, MigProfile]:
    """Returns the MIG profiles of the plan's GPU by name, smallest first; {} for a GPU without MIG, or one that is not
    known here."""
    if plan.gpus and plan.gpu_type == _A30:
        return _named(_A30_SHAPES, _A30_GB)
    names = next(
        (
            gb
            for gpu_type, most_mib, gb in _MEMORY_NAMES
            if plan.gpus and gpu_type == plan.gpu_type and plan.gpu_memory_mib <= most_mib
        ),
        None,
    )
    if names is None:
        return {}
    memory_gb = {"1g": names[0], "1g+": names[1], "2g": names[1], "3g": names[2], "4g": names[2], "7g": names[3]}
    return _named(_SHAPES, memory_gb)


def _named(
    shapes: Mapping[str, tuple[int, int, tuple[int, ...]]], memory_gb: Mapping[str, int]
) -> dict[str, MigProfile]:
    found = {}
    for shape, (compute, size, starts) in shapes.items():
        name = f"{shape.rstrip('+')}.{memory_gb[shape]}gb"
        found[name] = MigProfile(name, compute, size, starts)
    return found


def slices_of(plan: Plan) -> tuple[int, int]:
    """Returns the numbers of compute slices and of memory slices of the plan's GPU, which has MIG."""
    profiles = profiles_of(plan)
    return compute_slices(next(iter(profiles))), max(profile.size for profile in profiles.values())


def lay_out(plan: Plan, counts: Mapping[str, int]) -> tuple[MigInstance, ...]:
    """Returns the instances by place, () if they don't fit into one GPU, or if it has no such profile."""
    profiles = profiles_of(plan)
    if not counts.keys() <= profiles.keys():
        return ()
    wanted = [profiles[name] for name, count in counts.items() for _ in range(count)]
    if not wanted:
        return ()
    most_compute, most_memory = slices_of(plan)
    if sum(profile.compute for profile in wanted) > most_compute or sum(p.size for p in wanted) > most_memory:
        return ()
    # The largest first: they have the fewest places.
    wanted.sort(key=lambda profile: (-profile.size, -profile.compute))
    places = next(_places(wanted, ()), None)
    if places is None:
        return ()
    slice_mib = plan.gpu_memory_mib // most_memory
    return tuple(
        MigInstance(profile.name, start, profile.size, profile.compute, profile.size * slice_mib, most_memory)
        for start, profile in sorted(zip(places, wanted, strict=True), key=lambda pair: pair[0])
    )


def _places(wanted: Sequence[MigProfile], taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yields the first memory slices of the profiles, in their order. `taken`: those of the first ones."""
    at = len(taken)
    if at == len(wanted):
        yield taken
        return
    used = {
        memory_slice
        for start, profile in zip(taken, wanted, strict=False)
        for memory_slice in range(start, start + profile.size)
    }
    for start in wanted[at].starts:
        if used.isdisjoint(range(start, start + wanted[at].size)):
            yield from _places(wanted, (*taken, start))
