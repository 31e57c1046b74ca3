"""Rules of a cluster file about node groups."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from headway.catalog.providers import PROVIDERS
from headway.clusterfile import groups
from headway.clusterfile.draft import FaultText, FileDraft
from headway.clusterfile.groups import max_nodes, min_nodes
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.groups import GroupPart
from headway.domain.provider_traits import ProviderTraits
from headway.validation import syntax_rules
from headway.validation.field_types import UNLIMITED


def short_form_faults(file: ClusterFile) -> Iterator[FaultText]:
    """Yields fields of the short form in a file that has groups, and missing fields of the short form."""
    if file.groups:
        if file.plan is not None:
            yield "plan", "each group has its own", "remove it"
        if file.nodes is not None:
            yield "nodes", "each group has its own", "remove it"
        if file.max is not None:
            yield "max", "each group has its own", "remove it"
        if file.spares:
            yield "spares", "each group has its own", "remove it"
        for name in ("mig", "shards", "mps"):
            if getattr(file, name):
                yield name, "each group has its own", f"give it in the group: groups.NAME.{name}"
        return
    if file.plan is None:
        yield "plan", "is missing", ""
    if file.nodes is None:
        yield "nodes", "is missing", ""


def idle_faults(file: ClusterFile) -> Iterator[FaultText]:
    """Yields faults of autoscaled groups."""
    times = {name: part.idle for name, part in file.groups.items() if part.idle is not None}
    for name, idle in times.items():
        if idle != next(iter(times.values())):
            yield f"groups.{name}.idle", "differs from the groups above", "give one value: Slurm has one for all groups"
    for name in times:
        if file.groups[name].spares:
            yield f"groups.{name}.spares", "can't be combined with idle", "use min instead"


def reserved_faults(file: ClusterFile) -> Iterator[FaultText]:
    """Yields faults of reserved groups."""
    for name, part in file.groups.items():
        if part.reserved and part.spot:
            yield f"groups.{name}.spot", "can't be combined with reserved", "remove one of the two"
        if part.reserved and (part.idle is not None or part.max is not None):
            where = "idle" if part.idle is not None else "max"
            yield (
                f"groups.{name}.{where}",
                "can't be combined with reserved: reserved machines are paid for all the time",
                "make a second group for machines that are not reserved",
            )


def size_faults(path: str, part: GroupPart, provider: ProviderTraits) -> Iterator[FaultText]:
    """Yields faults of the node counts and the kind of machines of one group. `path`: "" for the short form, else
    "groups.NAME."."""
    if part.spot and not provider.creates_machines:
        yield f"{path}spot", "is true, and your own machines are not taken back", "remove spot"
    elif part.spot and not provider.offers_spot_machines:
        yield f"{path}spot", f"is true, and {provider.name} has no spot machines", "remove spot"
    if part.spot_fallback is not None and not part.spot:
        yield f"{path}spot_fallback", "needs spot", "give spot: true, or remove it"
    if part.spot_fallback is not None and not provider.rents_machines:
        yield f"{path}spot_fallback", "needs machines of a cloud", "remove it"
    if part.idle is not None:
        if part.nodes is not None:
            yield f"{path}nodes", "can't be combined with idle: Slurm sets the number of nodes", "give min and max"
        if part.max is None:
            yield f"{path}max", "is missing", "give the largest number of nodes"
        if part.idle == UNLIMITED:
            yield f"{path}idle", "is infinite", "leave it out and give nodes"
        elif part.idle < 60:
            yield f"{path}idle", "is less than a minute", "give 1 or more: a machine takes minutes to start"
    else:
        if part.queue_time is not None:
            yield f"{path}queue_time", "needs idle", "give idle, so that the group scales automatically; or remove it"
        if part.usd_per_hour is not None:
            yield f"{path}usd_per_hour", "needs idle", "give idle, or use cost.usd_per_hour of the cluster"
        if part.nodes is None:
            yield f"{path}nodes", "is missing", "give nodes; or min, max and idle for a group that scales automatically"
        if part.min is not None:
            yield f"{path}min", "needs idle", "give idle, or use nodes instead"
    if part.queue_time == UNLIMITED:
        yield f"{path}queue_time", "is infinite", "give a time, or nodes: 0 and no idle for a group that people scale"
    if part.max is not None and part.max < min_nodes(part):
        yield (
            f"{path}max",
            f"is {part.max}, and the group has {min_nodes(part)} nodes",
            f"give {min_nodes(part)} or more",
        )
    if max_nodes(part) == 0 and part.nodes == 0 and not provider.creates_machines:
        yield f"{path}nodes", "is 0", "give 1 or more; headway down releases all your machines"
    elif max_nodes(part) == 0 and part.nodes == 0:
        yield f"{path}nodes", "is 0 and max is missing", "add max, the largest number of nodes"
    if not provider.creates_machines and (part.idle is not None or max_nodes(part) > min_nodes(part)):
        where = "idle" if part.idle is not None else "max"
        yield f"{path}{where}", "needs a provider that creates machines", "leave it out: hosts lists all your machines"


def check_groups(draft: FileDraft) -> None:
    """Checks plans, sizes, prices and cost limits of node groups."""
    file = draft.file
    if draft.is_intact("groups"):
        for path, message, hint in short_form_faults(file):
            if draft.is_intact(path):
                draft.fault(path, message, hint)
    for name, part in groups.parts_of(file).items():
        path = f"groups.{name}." if file.groups else ""
        if (file.groups or file.plan is not None) and part.plan not in draft.catalogue:
            near = draft.suggest(part.plan, draft.catalogue)
            draft.fault(
                f"{path}plan",
                "is not in the catalogue",
                near or f"use one of {syntax_rules.join_words(draft.catalogue, 'and')}",
            )
        if draft.is_intact(path.rstrip(".") or "nodes", "max", "provider") and (file.groups or file.nodes is not None):
            provider = PROVIDERS[part.provider] if part.provider else draft.provider
            for where, message, hint in size_faults(path, part, provider):
                draft.fault(where, message, hint)
    for where, message, hint in (*idle_faults(file), *reserved_faults(file)):
        draft.fault(where, message, hint)
    _cost(draft)


def _cost(draft: FileDraft) -> None:
    limit, parts = draft.file.cost.usd_per_hour, groups.parts_of(draft.file)
    if not draft.has_size or any(part.plan not in draft.catalogue for part in parts.values()):
        return
    # The price of a rented machine is that of the cloud's offer, which a plan shows and a launch checks.
    owned = {name: part for name, part in parts.items() if not (part.provider or draft.provider.rents_machines)}
    built = [groups.build_group(name, part, draft.catalogue[part.plan], ()) for name, part in owned.items()]
    for group in built:
        least = group.min_usd_per_hour + group.price_usd_per_node_hour
        if group.max_usd_per_hour is not None and group.max_usd_per_hour < least:
            where, count = f"groups.{group.name}.usd_per_hour", group.min_machines + 1
            draft.fault(
                where,
                f"is {group.max_usd_per_hour.normalize():f}",
                f"give {least:.2f} or more: {count} nodes cost that",
            )
    if limit is None:
        return
    cost = sum((group.min_usd_per_hour for group in built), Decimal(0))
    if cost > Decimal(str(limit)):
        draft.fault(
            "cost.usd_per_hour",
            f"is {limit:g}, and the nodes and spares that always run cost {cost:.2f}",
            "raise it, or reduce nodes or spares",
        )
