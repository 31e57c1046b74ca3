"""Rules of parts of GPUs: MIG, shards, MPS."""

from __future__ import annotations

from collections.abc import Iterator

from headway.catalog.mig_profiles import lay_out, profiles_of, slices_of
from headway.clusterfile import groups
from headway.clusterfile.draft import FaultText, FileDraft, partitions_of
from headway.clusterfile.models.groups import GroupPart
from headway.domain.cluster import Plan
from headway.validation.syntax_rules import join_words


def check_gpu_parts(draft: FileDraft) -> None:
    """Checks that each group divides its GPUs in one way, and that the GPUs can be divided so."""
    if not draft.is_intact("groups", "mig", "shards", "mps", "plan"):
        return
    parts = groups.parts_of(draft.file)
    for name, part in parts.items():
        plan = draft.catalogue.get(part.plan)
        if plan is None or not _divided(part):
            continue
        path = f"groups.{name}." if draft.file.groups else ""
        for where, message, hint in (*_one_way(path, part), *_fits(path, part, plan)):
            draft.fault(where, message, hint)
    _same_shards(draft, parts)
    _apart(draft, parts)


def _divided(part: GroupPart) -> list[str]:
    return [name for name in ("mig", "shards", "mps") if getattr(part, name)]


def _one_way(path: str, part: GroupPart) -> Iterator[FaultText]:
    first, *more = _divided(part)
    for name in more:
        yield f"{path}{name}", f"can't be combined with {first}", "remove one of the two"


def _fits(path: str, part: GroupPart, plan: Plan) -> Iterator[FaultText]:
    if not plan.gpus:
        yield f"{path}{_divided(part)[0]}", f"needs GPUs, and plan {plan.name} has none", "remove it"
        return
    if not part.mig:
        return
    product, profiles = plan.gpu_product or plan.gpu_type, profiles_of(plan)
    if not profiles:
        yield (
            f"{path}mig",
            f"{product} of plan {plan.name} has no MIG profiles that Headway knows",
            "use shards or mps, or another plan",
        )
        return
    unknown = [name for name in part.mig if name not in profiles]
    for name in unknown:
        yield f"{path}mig.{name}", f"is not a MIG profile of {product}", f"use {join_words(profiles, 'or')}"
    if not unknown and not lay_out(plan, part.mig):
        compute, memory = (
            sum(getattr(profiles[name], of) * count for name, count in part.mig.items()) for of in ("compute", "size")
        )
        most_compute, most_memory = slices_of(plan)
        if compute > most_compute:
            why = f"needs {compute} compute slices, and a GPU has {most_compute}"
        elif memory > most_memory:
            why = f"needs {memory} memory slices, and a GPU has {most_memory}"
        else:
            why = "does not fit into a GPU: the places of its instances overlap"
        yield f"{path}mig", why, "give fewer or smaller instances"


def _same_shards(draft: FileDraft, parts: dict[str, GroupPart]) -> None:
    """A shard has no type in Slurm, so a request for one must mean the same on all nodes."""
    counts = {name: part.shards for name, part in parts.items() if part.shards}
    for name, count in counts.items():
        if count != next(iter(counts.values())):
            draft.fault(
                f"groups.{name}.shards",
                "differs from the groups above",
                "give one number: a request for a shard does not say of which kind",
            )


def _apart(draft: FileDraft, parts: dict[str, GroupPart]) -> None:
    """Warns about partitions where a request for GPUs without a type may get a MIG instance or a whole GPU."""
    mig = {name for name, part in parts.items() if part.mig}
    whole = {
        name
        for name, part in parts.items()
        if not part.mig and part.plan in draft.catalogue and draft.catalogue[part.plan].gpus
    }
    if not mig or not whole or not draft.is_intact("partitions"):
        return
    for name, partition in partitions_of(draft.file).items():
        named = set(partition.groups) or parts.keys()
        if named & mig and named & whole and partition.nodes is None:
            draft.warn(
                f"partitions.{name}.groups" if name in draft.file.partitions else "partitions",
                f"partition {name} has whole GPUs and MIG instances: a job that asks for GPUs without a type may get either",
                "give the groups partitions of their own",
            )
