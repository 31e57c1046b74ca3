"""All rules that span several fields of a cluster file, in the order in which they run, and those of single sections that are too
short for a module of their own. Each rule checks one thing and records every fault it finds.

They run on the part of the file whose single fields are valid, so that all faults show at once. `FileDraft.removed` has the
paths of removed fields: a rule reports nothing where it would need a removed field to be sure."""

from __future__ import annotations

from collections.abc import Callable

from headway.clusterfile import topology
from headway.clusterfile.draft import FileDraft
from headway.clusterfile.rules.cloud_rules import check_cloud
from headway.clusterfile.rules.gpu_parts_rules import check_gpu_parts
from headway.clusterfile.rules.group_rules import check_groups
from headway.clusterfile.rules.host_rules import check_hosts
from headway.clusterfile.rules.partition_rules import (
    check_partition_names,
    check_partition_sizes,
    check_preemption,
    check_unused_machines,
)
from headway.clusterfile.rules.qos_rules import check_qos
from headway.clusterfile.rules.reservation_rules import check_reservations
from headway.clusterfile.rules.slurm_key_rules import check_slurm_keys
from headway.clusterfile.rules.storage_rules import check_mounts, check_state_folder
from headway.clusterfile.rules.team_rules import check_parents, check_partition_limits, check_people, check_team_limits
from headway.validation import syntax_rules

LEAST_BACKUP_S, MOST_BACKUP_S = 600, 366 * 86400


def check_all(draft: FileDraft) -> None:
    """Runs all rules; the faults are added to the draft."""
    for rule in _RULES:
        rule(draft)


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


def _backup_and_key(draft: FileDraft) -> None:
    backup, key = draft.file.backup, draft.file.secrets.munge
    if backup is not None and not LEAST_BACKUP_S <= backup.every <= MOST_BACKUP_S:
        draft.fault("backup.every", "must be between 10 minutes and a year", 'for example "1-00:00:00", once a day')
    if key is not None and (key.file is None) == (key.command is None):
        draft.fault("secrets.munge", "needs either file or command", "give one of the two")


_RULES: tuple[Callable[[FileDraft], None], ...] = (
    _owner,
    check_groups,
    check_gpu_parts,
    check_hosts,
    check_cloud,
    _one_default_runtime,
    _alerts,
    _containers,
    _fabric,
    check_mounts,
    check_state_folder,
    _backup_and_key,
    check_partition_sizes,
    check_unused_machines,
    check_partition_names,
    check_preemption,
    check_people,
    check_parents,
    check_team_limits,
    check_partition_limits,
    check_qos,
    check_reservations,
    check_slurm_keys,
)
