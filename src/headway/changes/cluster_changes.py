"""Computes the ChangeSet from the desired and the observed state: what must change, in order, and what each change
disturbs. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from headway.changes.account_changes import account_changes
from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.changes.quota_changes import quota_notes
from headway.changes.reservation_changes import reservation_changes
from headway.domain.changeset import REBUILD, RESTART, Change, ChangeSet, Disturbs
from headway.domain.cluster import MAIN_GROUP, Cluster
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.machine import MachineState
from headway.domain.machines.observed_state import Observed
from headway.domain.slurm.accounts import Accounts
from headway.domain.slurm.hostlist import compress
from headway.render.slurm.change_impact import AbortingChanges, aborting_changes, impact_of_change, unreadable

SLURM_CONF = "/etc/slurm/slurm.conf"


@dataclass(frozen=True)
class DesiredState:
    """The desired state: files and units per role (Cluster.role_of), and the accounts."""

    cluster: Cluster
    roles: Mapping[str, DesiredMachine]
    accounts: Accounts
    members: tuple[str, ...] | None = None  # slots that should have a machine; None: all of them
    parts_now: Mapping[str, GpuParts] = field(default_factory=dict)  # as in Site

    @property
    def machines(self) -> tuple[str, ...]:
        """Returns the names of the heads and of all nodes that should exist."""
        cluster = self.cluster
        return (*cluster.heads, *(cluster.slot_names if self.members is None else self.members))


def changeset(goal: DesiredState, observed: Observed) -> ChangeSet:
    """Returns what must change, in order. If nothing must, `why_empty` says why."""
    cluster = goal.cluster
    changes = tuple(_all_changes(goal, observed))
    notes = tuple(_notes(goal, observed))
    if changes:
        return ChangeSet(cluster.name, changes, notes=(*shared_host_notes(cluster), *notes))
    count = len(goal.machines) - cluster.controllers
    heads = "the head" if cluster.controllers == 1 else "both heads"
    why = f"{heads} and {count} node{'s' * (count != 1)} already match the file"
    if goal.parts_now:
        why = f"all but the division of GPUs on {compress(goal.parts_now)} already is as the file says"
    return ChangeSet(cluster.name, (), why, notes)


def _notes(goal: DesiredState, observed: Observed) -> Iterator[str]:
    """Yields notes. A newer node image is no change: a rollout installs it, and apply changes the files below /etc
    anyway."""
    if observed.of_earlier_image and not observed.other_slurm:
        yield earlier_image_note(goal.cluster, observed.of_earlier_image)
    yield from gpu_parts_notes(goal)
    head = goal.cluster.head
    if head in observed.seen:
        yield from quota_notes(goal.roles["head"].quotas, observed.seen[head].quotas)


def shared_host_notes(cluster: Cluster) -> Iterator[str]:
    """Yields a warning if several people use machines that are containers on one host."""
    if cluster.provider.shares_one_host and len(cluster.users) > 1:
        yield (
            f"{len(cluster.users)} people share the kernel of this host: local machines are privileged containers without user "
            "namespaces, and root of a machine is root of the host. Give accounts only to people whom you trust with the "
            "host; use provider ssh for others"
        )


def with_effects(goal: DesiredState, observed: Observed) -> DesiredState:
    """Returns the desired state with what activating the new slurm.conf disturbs. While the first head is down the
    second one is active, so restarting its controller counts as a controller restart."""
    if goal.cluster.head not in observed.seen:
        goal = _second_leads(goal)
    old, head = observed.texts.get(SLURM_CONF, ""), goal.roles.get("head")
    if head is None or not old:
        return goal
    new, why = head.files[SLURM_CONF].text, unreadable(old)
    if why:  # the old text is unreadable, so slurmctld is restarted with the new one
        effect, ends, unread = Disturbs.CONTROLLER_RESTART, "", {SLURM_CONF: why}
    else:
        effect, unread = impact_of_change(old, new, goal.cluster.slurm_version), {}
        ends = _ended_jobs_text(goal.cluster, observed, aborting_changes(old, new))
    roles = dict(goal.roles)
    leads = goal.cluster.head if goal.cluster.head in observed.seen else goal.cluster.heads[-1]
    for role in {"head", goal.cluster.role_of(leads)} & roles.keys():
        roles[role] = replace(roles[role], effects={SLURM_CONF: effect}, ends={SLURM_CONF: ends}, unread=unread)
    return replace(goal, roles=roles)


def _second_leads(goal: DesiredState) -> DesiredState:
    """Returns the desired state with a restart of the second head's slurmctld counted as a controller restart."""
    role = goal.cluster.role_of(goal.cluster.heads[-1])
    if goal.cluster.controllers == 1 or role not in goal.roles:
        return goal
    desired = goal.roles[role]
    units = [
        replace(unit, disturbs=Disturbs.CONTROLLER_RESTART) if unit.name == "slurmctld.service" else unit
        for unit in desired.units
    ]
    return replace(goal, roles={**goal.roles, role: replace(desired, units=tuple(units))})


def _ended_jobs_text(cluster: Cluster, observed: Observed, ending: AbortingChanges) -> str:
    """Returns which jobs Slurm ends when it reads the new file, as text; "" if there are none."""
    if ending and observed.unasked:
        reasons = [f"partition {name} is removed" for name in sorted(ending.partitions)]
        if ending.nodes:
            reasons.append(f"other processors or GPUs on {compress(ending.nodes)}")
        return f"{', '.join(reasons)}; the jobs that Slurm ends for that are unknown: {observed.unasked}"
    nodes = {name: jobs for name, jobs in observed.aborted.items() if name in cluster.group_of}
    reasons = [
        f"partition {name} is removed and Slurm ends {_jobs_text(jobs)}"
        for name, jobs in sorted(observed.aborted.items())
        if name not in nodes
    ]
    if nodes:
        jobs = tuple(sorted({job for some in nodes.values() for job in some}))
        reasons.append(f"other processors or GPUs on {compress(nodes)}: Slurm ends {_jobs_text(jobs)} there")
    return "; ".join(reasons)


def _all_changes(goal: DesiredState, observed: Observed) -> Iterator[Change]:
    """Yields all changes in order: storage, machines, files and units of each machine, accounts,
    reservations."""
    goal = with_effects(goal, observed)
    yield from _storage(goal.cluster, observed)
    yield from _machines(goal, observed)
    for name in goal.machines:
        seen = observed.seen.get(name)
        if seen is not None:
            role = goal.cluster.role_of(name)
            for change in machine_changes(name, goal.roles[role], seen):
                yield _with_diff(change, goal, observed)
        elif name in observed.unreachable:
            yield Change(RESTART, name, name, observed.unreachable[name], Disturbs.JOBS)
    if observed.accounts is not None:
        yield from account_changes(goal.accounts, observed.accounts)
    elif goal.cluster.head in observed.machines:
        yield Change("account.all", "cluster", "accounts", "the accounting database does not answer yet")
    if observed.reservations is not None:
        yield from reservation_changes(goal.cluster.reservations, goal.cluster.slot_names, observed.reservations)
    elif goal.cluster.reservations and goal.cluster.head in observed.machines:
        yield Change("reservation.all", "cluster", "reservations", "slurmctld does not answer yet")


def _storage(cluster: Cluster, observed: Observed) -> Iterator[Change]:
    if not observed.machines or not cluster.provider.volumes_on_server:
        return
    names = {dataset.name for dataset in cluster.storage.datasets}
    for name in sorted(names - observed.datasets):
        yield Change("dataset.attach", "cluster", name, "is not mounted yet")
    for name in sorted(observed.datasets - names):
        why = (
            "is no longer part of the cluster file: running programs keep their open files there and can't open others"
        )
        yield Change("dataset.detach", "cluster", name, why, Disturbs.JOBS)


def _machines(goal: DesiredState, observed: Observed) -> Iterator[Change]:
    cluster = goal.cluster
    desired = goal.machines
    spares = {name for group in cluster.groups if group.spares for name in group.slots[group.most :]}
    for name in sorted(set(observed.machines) - set(desired)):
        yield _removal(name, cluster, observed.jobs.get(name, ()))
    for name in desired:
        machine = observed.machines.get(name)
        kind = "head" if name in cluster.heads else "spare" if name in spares else "node"
        if machine is None and name in observed.replaced:
            yield _replacement(name, kind, observed.jobs.get(name, ()))
        elif name in observed.other_slurm:
            yield _upgrade_change(name, cluster, observed.other_slurm[name])
        elif machine is None:
            yield Change("machine.create", name, name, f"the cluster has no such {kind} yet", data={"role": kind})
        elif machine.state is MachineState.STOPPED:
            yield Change("machine.start", name, name, "is stopped", data={"role": kind})


def _upgrade_change(name: str, cluster: Cluster, old: str) -> Change:
    why = (
        f"Slurm {old} becomes {cluster.slurm_version}: slurmdbd and slurmctld stop meanwhile; jobs continue, sessions end. "
        "A roll of the nodes follows: each takes no new jobs until it is done"
    )
    return Change(REBUILD, name, name, why, Disturbs.REBUILD)


def _removal(name: str, cluster: Cluster, jobs: tuple[int, ...]) -> Change:
    group = cluster.group_of.get(name)
    why = "is no longer part of the cluster file"
    if group is not None:
        whose = "" if group.name == MAIN_GROUP else f" of {group.name}"
        why = f"{group.nodes} node{'s' * (group.nodes != 1)}{whose} {'is' if group.nodes == 1 else 'are'} wanted"
    if not jobs:
        return Change(
            "machine.delete", name, name, f"{why}; the node is drained and its machine is returned", Disturbs.NODE_DRAIN
        )
    words = f"{why}; it runs {_jobs_text(jobs)}"
    return Change("machine.delete", name, name, words, Disturbs.JOBS, data={"jobs": list(jobs)})


def _replacement(name: str, kind: str, jobs: tuple[int, ...]) -> Change:
    """Returns the change in which an owned machine takes the place of another."""
    why, data = "hosts has another machine or address for it", {"role": kind}
    if not jobs:
        words = f"{why}: a removed machine is drained and returned"
        return Change("machine.create", name, name, words, Disturbs.NODE_DRAIN, data=data)
    return Change(
        "machine.create",
        name,
        name,
        f"{why}; it runs {_jobs_text(jobs)}",
        Disturbs.JOBS,
        data={**data, "jobs": list(jobs)},
    )


def _jobs_text(jobs: tuple[int, ...]) -> str:
    return f"job{'s' * (len(jobs) != 1)} " + ", ".join(map(str, jobs[:5])) + (" and more" if len(jobs) > 5 else "")


def _with_diff(change: Change, goal: DesiredState, observed: Observed) -> Change:
    """Returns the change with the changed lines of the head's Slurm files, at most 60. Files with a secret are never
    shown."""
    old = observed.texts.get(change.what)
    if change.kind != "file.write" or change.where != goal.cluster.head or old is None:
        return change
    file = goal.roles["head"].files[change.what]
    if file.secret:
        return change
    lines = difflib.unified_diff(old.splitlines(), file.text.splitlines(), lineterm="", n=0)
    kept = tuple(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    return replace(change, diff=kept[:60])


def gpu_parts_notes(goal: DesiredState) -> Iterator[str]:
    """Yields the plan's notes about nodes whose GPUs are divided otherwise than the file says. apply leaves them as they
    are, because Slurm ends a node's jobs when its GPUs change."""
    cluster = goal.cluster
    alike: dict[tuple[str, str], list[str]] = {}
    for name, parts in goal.parts_now.items():
        wanted = cluster.group_of[name].parts.description
        alike.setdefault((parts.description, wanted), []).append(name)
    for (present, wanted), names in alike.items():
        yield (
            f"{compress(names)}: each GPU is to be {wanted}, now {present}; effect: {Disturbs.NODE_DRAIN}, one node after "
            f"the other, jobs go on: headway roll {cluster.name}"
        )


def earlier_image_note(cluster: Cluster, names: tuple[str, ...]) -> str:
    """Returns the plan's note about machines that run another node image, which apply does not change."""
    run = f"{compress(names)} run{'s' * (len(names) == 1)}"
    head = " --head" if set(cluster.heads) & set(names) else ""
    return (
        f"{run} another node image than {cluster.image} is now, and may go on so; effect of taking it up: "
        f"{Disturbs.REBUILD}, node by node, jobs go on: headway roll {cluster.name}{head}"
    )
