"""Rules that span several fields of a cluster file. Each rule checks one thing and records every fault it finds.

They run on the part of the file whose single fields are valid, so that all faults show at once. `FileDraft.removed` has the
paths of removed fields: a rule reports nothing where it would need a removed field to be sure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from headway.catalog import allowed_slurm_keys
from headway.catalog.node_images import IMAGES
from headway.catalog.providers import PROVIDERS
from headway.clusterfile import groups, partition_tiers, topology
from headway.clusterfile.draft import FileDraft
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.storage import DatasetPart
from headway.clusterfile.rules import group_rules
from headway.clusterfile.rules.cloud_rules import check_cloud
from headway.clusterfile.rules.gpu_parts_rules import check_gpu_parts
from headway.clusterfile.rules.qos_rules import check_qos
from headway.clusterfile.rules.reservation_rules import check_reservations
from headway.clusterfile.rules.slurm_state_folder import state_folder_faults
from headway.clusterfile.rules.team_rules import check_parents, check_partition_limits, check_people, check_team_limits
from headway.validation import mount_line, syntax_rules
from headway.validation.field_types import UNLIMITED

LEAST_BACKUP_S, MOST_BACKUP_S = 600, 366 * 86400
_LEAVE_OUT = "leave nodes out of one partition: it then has all nodes"


def check_all(draft: FileDraft) -> None:
    """Runs all rules; the faults are added to the draft."""
    for rule in _RULES:
        rule(draft)


def _groups(draft: FileDraft) -> None:
    file = draft.file
    if draft.is_intact("groups"):
        for path, message, hint in group_rules.short_form_faults(file):
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
            for where, message, hint in group_rules.size_faults(path, part, provider):
                draft.fault(where, message, hint)
    for where, message, hint in (*group_rules.idle_faults(file), *group_rules.reserved_faults(file)):
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


def _one_default_runtime(draft: FileDraft) -> None:
    """Checks that no place gives both an environment and a container image, which has its own Python."""
    file = draft.file
    given = {"": (file.environment, file.container_image)}
    given |= {f"partitions.{name}.": (part.environment, part.container_image) for name, part in file.partitions.items()}
    given |= {f"teams.{name}.": (team.environment, team.container_image) for name, team in file.teams.items()}
    for path, (environment, image) in given.items():
        if environment and image:
            what = "is given together with environment"
            draft.fault(f"{path}container_image", what, "keep one of them: a container has its own Python")


def _owner(draft: FileDraft) -> None:
    problem = syntax_rules.user_name_fault(draft.owner)
    if problem:
        draft.fault(
            "", f"the person who applies the file can't be a user of the cluster: {problem}", "use another user name"
        )


def _provider(draft: FileDraft) -> None:
    hosts = draft.file.hosts
    if draft.is_intact("provider"):
        if hosts and draft.provider.creates_machines:
            draft.fault("hosts", "needs provider ssh", "give provider: ssh, or remove hosts")
        if draft.has_size:
            _enough_machines(draft)
        if draft.file.firewall.ssh_from and draft.provider.private_network:
            draft.fault("firewall", "needs provider ssh", "remove it: local machines have their own network")
        if draft.file.gpu.driver == "install" and draft.provider.boots_node_images:
            draft.fault("gpu.driver", "needs provider ssh", "remove it: local machines simulate their GPUs")
    heads = [index for index, host in enumerate(hosts) if host.role == "head"]
    most = draft.file.controllers if draft.is_intact("controllers") else len(heads)
    for index in heads[most:]:
        there = "is the second head" if most == 1 else "is the third head"
        hint = "a cluster has one head, or two with controllers: 2" if most == 1 else "a cluster has at most two heads"
        draft.fault(f"{draft.item('hosts', index)}.role", there, hint)
    nodes = [index for index, host in enumerate(hosts) if host.role == "node"]
    if (
        nodes
        and draft.is_intact("hosts", "controllers")
        and len(hosts) - len(nodes) < draft.file.controllers <= len(hosts)
    ):
        draft.fault(
            f"{draft.item('hosts', nodes[0])}.role",
            "leaves no machine for the head" if len(nodes) == len(hosts) else "leaves one machine for two heads",
            "remove role: node, or give role: head",
        )
    first: dict[tuple[str, int], int] = {}
    for index, host in enumerate(hosts):
        if host.sudo_password and host.user == "root":
            draft.fault(
                f"{draft.item('hosts', index)}.sudo_password",
                "user root needs no sudo",
                "give user, or remove sudo_password",
            )
        for key, address in (("address", host.address), ("jump.address", host.jump.address if host.jump else "")):
            if ":" in address:
                draft.fault(
                    f"{draft.item('hosts', index)}.{key}",
                    f"{address} is an IPv6 address",
                    "give an IPv4 address or a name that has one: the machines of a cluster use IPv4",
                )
        if first.setdefault((host.address.lower(), host.port), index) != index:
            draft.fault(draft.item("hosts", index), f"{host.address} is given twice", "remove one")


def _alerts(draft: FileDraft) -> None:
    if draft.is_intact("mail", "alerts") and draft.file.alerts.mail and draft.file.mail is None:
        draft.fault("alerts.mail", "needs a mail server", "add mail: {relay: HOST:PORT}")


def _containers(draft: FileDraft) -> None:
    if not draft.is_intact("provider", "containers"):
        return
    if draft.file.containers.backend == "enroot" and draft.provider.boots_node_images:
        draft.fault(
            "containers.backend",
            "Headway's node images have no Enroot and Pyxis",
            "leave it out: builtin is the default",
        )
    if draft.file.containers.backend == "enroot" and draft.file.containers.signatures is not None:
        draft.fault(
            "containers.signatures",
            "can't be enforced: Enroot verifies no signatures of images",
            "use backend: builtin, or remove signatures",
        )


def _enough_machines(draft: FileDraft) -> None:
    have, total, most = len(draft.file.hosts), draft.total, draft.provider.max_machines
    if most is not None and total > most:
        draft.fault(
            "nodes",
            f"nodes + spares is {total}, and {draft.provider.name} has at most {most} machines",
            "use provider: ssh",
        )
    total = groups.listed_slots(draft.file)
    need = total + draft.file.controllers
    if not draft.provider.creates_machines and draft.is_intact("hosts", "controllers") and have < need:
        heads = "the head" if draft.file.controllers == 1 else "two heads"
        draft.fault(
            "hosts",
            f"lists {have} machines; {total} nodes and spares plus {heads} need {need}",
            f"add machines, {heads} first",
        )


def _fabric(draft: FileDraft) -> None:
    part = draft.file.fabric
    if part.switches is None:
        return
    if part.leaf_size is not None:
        draft.fault("fabric", "has both leaf_size and switches", "remove one of them")
    if not draft.is_intact("fabric.switches"):
        return
    total = draft.total if draft.has_size else None
    for where, message, hint in topology.switch_tree_faults(part.switches, total):
        draft.fault(f"fabric.switches{where}", message, hint)


def _datasets(draft: FileDraft) -> None:
    seen_names: set[str] = set()
    seen_mounts: dict[str, str] = {}
    for index, part in enumerate(draft.file.storage.datasets):
        where = draft.item("storage.datasets", index)
        if part.name in seen_names:
            draft.fault(f"{where}.name", f"{part.name} is given twice", "give each dataset its own name")
        seen_names.add(part.name)
        _dataset_path(draft, part, where)
        mount = dataset_mount(part)
        problem = mount_line.mount_fault(mount)
        if problem:
            draft.fault(f"{where}.mount", problem, f"for example /datasets/{part.name}")
            continue
        for other, name in seen_mounts.items():
            if f"{mount}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mount}/"):
                draft.fault(f"{where}.mount", f"overlaps the mount of {name}, {other}", "use separate folders")
                break
        seen_mounts[mount] = part.name
    for index, volume in enumerate(draft.file.storage.volumes):
        where = draft.item("storage.volumes", index)
        if volume.name in seen_names:
            draft.fault(f"{where}.name", f"{volume.name} is given twice", "give each volume and dataset its own name")
        seen_names.add(volume.name)
        mount = volume.path.rstrip("/") or "/"
        problem = mount_line.mount_fault(mount)
        if problem or mount in ("/home", "/scratch"):
            draft.fault(
                f"{where}.path", problem or f"{mount} is on every machine already", f"for example /{volume.name}"
            )
            continue
        for other, name in seen_mounts.items():
            if f"{mount}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mount}/"):
                draft.fault(f"{where}.path", f"overlaps the mount of {name}, {other}", "use separate folders")
                break
        seen_mounts[mount] = volume.name


def _state(draft: FileDraft) -> None:
    if draft.is_intact("provider", "controllers", "storage"):
        for where, message, hint in state_folder_faults(draft.file, draft.provider):
            draft.fault(where, message, hint)


def dataset_mount(part: DatasetPart) -> str:
    """Returns the mount point of a dataset on the machines, without a slash at the end."""
    return (part.mount or f"/datasets/{part.name}").rstrip("/") or "/"


def _dataset_path(draft: FileDraft, part: DatasetPart, where: str) -> None:
    if part.path is None:
        if draft.provider.volumes_on_server and draft.is_intact("provider", f"{where}.path"):
            draft.fault(f"{where}.path", "is missing", "give the folder on this machine")
        return
    problem = syntax_rules.path_fault(part.path) or ("can't be the root folder" if part.path == "/" else "")
    if problem:
        hint = "give an absolute path" if not part.path.startswith("/") else ""
        draft.fault(f"{where}.path", problem, hint)


def _keeping(draft: FileDraft) -> None:
    backup, key = draft.file.backup, draft.file.secrets.munge
    if backup is not None and not LEAST_BACKUP_S <= backup.every <= MOST_BACKUP_S:
        draft.fault("backup.every", "must be between 10 minutes and a year", 'for example "1-00:00:00", once a day')
    if key is not None and (key.file is None) == (key.command is None):
        draft.fault("secrets.munge", "needs either file or command", "give one of the two")


def _partition_sizes(draft: FileDraft) -> None:
    defaults = []
    for name, part in draft.file.partitions.items():
        path = f"partitions.{name}"
        have = max(draft.file.nodes or 0, draft.file.max or 0)
        if part.nodes is not None and draft.file.groups:
            draft.fault(f"{path}.nodes", "does not name the group of the nodes", "use groups: [NAME]")
        elif part.nodes is not None and part.groups:
            draft.fault(f"{path}.nodes", "can't be combined with groups", "remove one")
        elif draft.is_intact("nodes", "max") and have and part.nodes is not None and part.nodes > have:
            draft.fault(
                f"{path}.nodes",
                f"is {part.nodes}, and the cluster has {have} nodes",
                f"give {have} or fewer; spares don't count",
            )
        elif part.nodes is not None and part.nodes == draft.file.nodes and draft.total > part.nodes:
            others = "leave it out to include spares and nodes that scaling adds"
            draft.warn(f"{path}.nodes", f"is {part.nodes}, the present number of nodes: {others}")
        if part.default:
            defaults.append(name)
        longest, usual = part.max_time, part.default_time
        if usual is not None and longest not in (None, UNLIMITED) and (usual == UNLIMITED or usual > (longest or 0)):
            draft.fault(f"{path}.default_time", "is longer than max_time", "make it shorter")
    for name in defaults[1:]:
        draft.fault(
            f"partitions.{name}.default", f"{defaults[0]} is the default partition already", "remove one default"
        )


def _unused(draft: FileDraft) -> None:
    """Warns about machines that are in no partition: they cost money, and no job can use them."""
    file, parts = draft.file, draft.file.partitions.values()
    if not parts or not draft.has_size or not draft.is_intact("partitions"):
        return
    named = {group for part in parts for group in part.groups}
    if file.groups and named <= file.groups.keys() and all(part.groups for part in parts):
        for name in file.groups:
            if name not in named:
                draft.warn(
                    f"groups.{name}",
                    "is in no partition, so no job can use its nodes",
                    "add it to the groups of a partition",
                )
    if file.groups or not all(part.nodes for part in parts):
        return
    reach, nodes = max(part.nodes or 0 for part in parts), file.nodes or 0
    if reach == nodes:  # already reported for that partition
        return
    for where, count in (("nodes", nodes), ("max", file.max or 0)):
        if count > reach:
            draft.warn(where, f"is {count}, and the partitions use only the first {reach}", _LEAVE_OUT)
            break
    if file.spares:
        draft.warn("spares", "are in no partition, so they can't replace a node", _LEAVE_OUT)


def _partition_names(draft: FileDraft) -> None:
    """Checks references to partitions, groups and teams."""
    partitions, groups_known = dict.fromkeys(draft.names("partitions")), dict.fromkeys(draft.names("groups"))
    teams = dict.fromkeys(draft.names("teams") or ["default"])
    for name, part in draft.file.partitions.items():
        for what, field_name, names, known in (
            ("partition", "preempts", part.preempts, partitions),
            ("group", "groups", part.groups, groups_known),
            ("team", "teams", part.teams, teams),
        ):
            seen = set[str]()
            for index, other in enumerate(names):
                where = draft.item(f"partitions.{name}.{field_name}", index)
                if other == name and what == "partition":
                    draft.fault(where, f"{name} can't preempt itself", "remove it")
                elif other not in known:
                    draft.fault(
                        where, f"{what} {syntax_rules.printable(other)} does not exist", draft.suggest(other, known)
                    )
                elif other in seen:
                    draft.fault(where, f"{other} is given twice", "keep one")
                seen.add(other)


def preemption_rules(file: ClusterFile) -> dict[str, partition_tiers.PreemptionRule]:
    """Returns the preemption settings of each partition, limited to existing names."""
    known = file.partitions
    return {
        name: partition_tiers.PreemptionRule(
            frozenset(item for item in part.preempts if item in known and item != name), part.tier
        )
        for name, part in known.items()
    }


def _preemption(draft: FileDraft) -> None:
    if any(re.fullmatch(r"partitions(\.[^.]+(\.(preempts|tier)(\[\d+\])?)?)?", place) for place in draft.removed):
        return
    for clash in partition_tiers.assign_tiers(preemption_rules(draft.file))[1]:
        draft.fault(f"partitions.{clash.partition}.{clash.field}", clash.message, clash.hint)


def _slurm(draft: FileDraft) -> None:
    if not draft.is_intact("image"):
        return
    version = IMAGES[draft.file.image].slurm.name
    tables: list[tuple[str, Mapping[str, str], bool]] = [("slurm", draft.file.slurm, False)]
    tables += [(f"partitions.{name}.slurm", part.slurm, True) for name, part in draft.file.partitions.items()]
    for path, table, partition in tables:
        for key, value in table.items():
            message, hint = allowed_slurm_keys.key_fault(key, value, version, partition=partition)
            if message:
                draft.fault(f"{path}.{key}", message, hint)
    least, unkillable = (
        allowed_slurm_keys.least_unkillable_s(draft.file.slurm),
        draft.file.slurm.get("UnkillableStepTimeout", ""),
    )
    if unkillable.isdecimal() and int(unkillable[:12]) < least:
        words = f"is less than five times MessageTimeout, which Slurm reports as an error: Headway uses {least}"
        draft.warn("slurm.UnkillableStepTimeout", words, f"give {least} or more")
    jobs, array = draft.file.slurm.get("MaxJobCount", ""), draft.file.slurm.get("MaxArraySize", "")
    if jobs.isdecimal() and array.isdecimal() and int(jobs[:12]) < int(array[:12]):
        draft.warn("slurm.MaxJobCount", "is less than MaxArraySize, so a whole array does not fit in the queue")


_RULES: tuple[Callable[[FileDraft], None], ...] = (
    _owner,
    _groups,
    check_gpu_parts,
    _provider,
    check_cloud,
    _one_default_runtime,
    _alerts,
    _containers,
    _fabric,
    _datasets,
    _state,
    _keeping,
    _partition_sizes,
    _unused,
    _partition_names,
    _preemption,
    check_people,
    check_parents,
    check_team_limits,
    check_partition_limits,
    check_qos,
    check_reservations,
    _slurm,
)
