"""Rules about reservations: names, nodes, groups, partitions, teams and users that they name."""

from __future__ import annotations

from headway.clusterfile import groups, topology
from headway.clusterfile.draft import FileDraft, partitions_of
from headway.clusterfile.models.scheduling.reservations import ReservationPart
from headway.domain.slurm.nodes_and_jobs import OURS
from headway.validation import syntax_rules

_DEFAULT_TEAM = "default"


def check_reservations(draft: FileDraft) -> None:
    """Records faults of reservations."""
    for name, part in draft.file.reservations.items():
        path = f"reservations.{name}"
        if name.startswith(OURS):
            draft.fault(path, f"begins with {OURS}, as Headway's own reservations do", "rename it")
        if not (part.users or part.teams or part.maintenance):
            draft.fault(path, "says nothing about who may use it", "give users or teams, or maintenance: true")
        _check_nodes(draft, path, part)
        _check_names(draft, f"{path}.teams", "team", part.teams, draft.names("teams") or [_DEFAULT_TEAM])
        members = {user for team in draft.file.teams.values() for user in team.users} | {draft.owner}
        if draft.is_intact("teams"):
            _check_names(draft, f"{path}.users", "user", part.users, sorted(members))


def _check_nodes(draft: FileDraft, path: str, part: ReservationPart) -> None:
    if part.groups and part.nodes is not None:
        draft.fault(f"{path}.groups", "is given together with nodes", "keep one of them")
    if draft.is_intact("groups"):
        _check_names(draft, f"{path}.groups", "group", part.groups, list(groups.parts_of(draft.file)))
    if isinstance(part.nodes, list) and draft.has_size and draft.is_intact("fabric"):
        _check_names(draft, f"{path}.nodes", "node", part.nodes, _slot_names(draft))
    if part.partition is not None:
        if not isinstance(part.nodes, int):
            draft.fault(f"{path}.partition", "needs a number of nodes", "give nodes: 2, or groups instead of partition")
        if draft.is_intact("partitions"):
            _check_names(draft, f"{path}.partition", "partition", [part.partition], list(partitions_of(draft.file)))
    if isinstance(part.nodes, int) and draft.has_size and part.nodes > draft.total:
        draft.fault(f"{path}.nodes", f"is more than the {draft.total} nodes of the cluster", "give a smaller number")


def _slot_names(draft: FileDraft) -> list[str]:
    sizes = {name: groups.max_nodes(part) + part.spares for name, part in groups.parts_of(draft.file).items()}
    return [slot.name for slot in topology.lay_out_fabric(draft.file.name, draft.file.fabric, sizes)[0]]


def _check_names(draft: FileDraft, path: str, what: str, names: list[str], known: list[str]) -> None:
    for index, name in enumerate(names):
        if name not in known:
            place = path if path.endswith(".partition") else draft.item(path, index)
            message = f"{what} {syntax_rules.printable(name)} does not exist"
            draft.fault(place, message, draft.suggest(name, known))
