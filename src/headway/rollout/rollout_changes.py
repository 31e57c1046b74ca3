"""Decides which machines a rollout creates again from another node image, and what that disturbs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.domain.changeset import REBUILD, Change, ChangeSet, Disturbs
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import compress


@dataclass(frozen=True)
class RolloutState:
    """The facts that a rollout decides by. `rolling`: nodes that a rollout has drained, whose machine may be missing;
    `out`: nodes out of service for another reason, with that reason."""

    machines: Mapping[str, Machine]
    busy: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # node -> its jobs
    rolling: frozenset[str] = frozenset()
    out: Mapping[str, str] = field(default_factory=dict)


def nodes_to_roll(cluster: Cluster, seen: RolloutState, image: str) -> tuple[str, ...]:
    """Returns the nodes still to roll to this image, those already begun first, then those without jobs."""
    names = [
        name
        for name in cluster.slot_names
        if name in seen.rolling or (name not in seen.out and _has_other_image(seen.machines.get(name), image))
    ]
    return tuple(sorted(names, key=lambda name: (name not in seen.rolling, name in seen.busy)))


def nodes_left_out(cluster: Cluster, seen: RolloutState, image: str) -> dict[str, str]:
    """Returns the nodes with another image that are out of service for another reason, with that reason. A rollout does
    not touch them."""
    return {
        name: seen.out[name]
        for name in cluster.slot_names
        if name in seen.out and name not in seen.rolling and _has_other_image(seen.machines.get(name), image)
    }


def heads_to_roll(cluster: Cluster, seen: RolloutState, image: str) -> tuple[str, ...]:
    """Returns the heads to roll, the active one last."""
    return tuple(name for name in reversed(cluster.heads) if _has_other_image(seen.machines.get(name), image))


def rollout_changes(
    cluster: Cluster, seen: RolloutState, image: str, tag: str, *, head: bool, deadline: bool, mixed_slurm: bool = False
) -> ChangeSet:
    """Returns the changes of a rollout, in order. `head`: also the heads, last; `deadline`: jobs are requeued after a
    deadline; `mixed_slurm`: nodes have different Slurm versions until the end, and no job may have nodes of both."""
    changes = list(_nodes(cluster, seen, image, tag, by=deadline))
    for name in heads_to_roll(cluster, seen, image) if head else ():
        why = f"will be rebuilt from {tag}; {leader_text(cluster, name)}, jobs continue, sessions on it end"
        changes.append(Change(REBUILD, name, name, why, Disturbs.REBUILD))
    notes = list(_notes(cluster, seen, image, head=head))
    if mixed_slurm and changes:
        notes.append(
            "the Slurm version changes: a node takes new jobs only when it is done, and no job gets nodes of both versions"
        )
    why_empty = "" if changes else f"every node in service runs {tag}"
    return ChangeSet(cluster.name, tuple(changes), why_empty, tuple(notes))


def _nodes(cluster: Cluster, seen: RolloutState, image: str, tag: str, *, by: bool) -> Iterator[Change]:
    for name in nodes_to_roll(cluster, seen, image):
        jobs = seen.busy.get(name, ())
        if not _has_other_image(seen.machines.get(name), image) and name in seen.machines:
            yield Change(REBUILD, name, name, f"has {tag} already and is not tested yet", Disturbs.REBUILD)
        elif jobs and by:
            why = f"will be rebuilt from {tag}; {_jobs(jobs)} may continue until the deadline"
            yield Change(REBUILD, name, name, why, Disturbs.JOBS)
        else:
            ended = "has ended" if len(jobs) == 1 else "have ended"
            waits = f", once {_jobs(jobs)} {ended}" if jobs else ""
            yield Change(REBUILD, name, name, f"will be rebuilt from {tag}{waits}", Disturbs.REBUILD)


def _notes(cluster: Cluster, seen: RolloutState, image: str, *, head: bool) -> Iterator[str]:
    for name, reason in nodes_left_out(cluster, seen, image).items():
        yield f"{name} is out of service and stays unchanged: {reason}"
    heads = heads_to_roll(cluster, seen, image)
    if heads and not head:
        one = len(heads) == 1
        words = "runs another node image and stays unchanged" if one else "run another node image and stay unchanged"
        yield f"{compress(heads)} {words}; --head updates {'it' if one else 'them'} too, after the nodes"


def leader_text(cluster: Cluster, head: str) -> str:
    """Returns what happens to the controller while this head is created again."""
    others = [name for name in cluster.heads if name != head]
    return f"{others[0]} is the active head meanwhile" if others else "slurmctld is down meanwhile"


def _has_other_image(machine: Machine | None, image: str) -> bool:
    return machine is not None and machine.image not in ("", image)


def _jobs(jobs: tuple[int, ...]) -> str:
    return f"job{'s' * (len(jobs) != 1)} {', '.join(map(str, jobs[:5]))}" + (" and more" if len(jobs) > 5 else "")
