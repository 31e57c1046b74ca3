"""Quotas of users on /home and /scratch: what must change, and why a volume can't have any. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.domain.changeset import Change
from headway.domain.dataset import format_bytes
from headway.domain.storage.quotas import DesiredQuota, ObservedQuota, UserQuota
from headway.validation.syntax_rules import join_words

_NOBODY = UserQuota(0, 0, assigned=False)
_MOST_NAMES = 5


def quota_changes(
    machine: str, desired: Mapping[str, DesiredQuota], seen: Mapping[str, ObservedQuota]
) -> Iterator[Change]:
    """Yields one change per volume with users whose limit differs. A volume that can't have quotas has none."""
    for path, goal in desired.items():
        now = seen.get(path)
        if now is not None and not now.enforced:
            continue
        users = {} if now is None else now.users
        differ = {user: uid for user, uid in goal.uids.items() if _differs(users.get(user, _NOBODY), goal.limit)}
        if differ:
            names = sorted(differ)
            who = f"{len(names)} users" if len(names) > _MOST_NAMES else join_words(names, "and")
            limit = f"{format_bytes(goal.limit)} each" if goal.limit else "no limit"
            limits = {other: quota.limit for other, quota in desired.items()}
            rule = {"limit": goal.limit, "first_project": goal.first_project, "uids": differ}
            data = {"path": path, **rule, "limits": limits}
            yield Change("quota.set", machine, path, f"quota of {who}: {limit}", data=data)


def _differs(now: UserQuota, limit: int) -> bool:
    return now.limit != limit or not now.guarded or (limit > 0 and not now.assigned)


def quota_notes(desired: Mapping[str, DesiredQuota], seen: Mapping[str, ObservedQuota]) -> Iterator[str]:
    """Yields the plan's note about each volume that should have quotas and can't."""
    for path, goal in desired.items():
        fault = quota_fault(path, seen[path]) if goal.limit and path in seen else ""
        if fault:
            yield f"storage{path.replace('/', '.')}.quota: {fault}"


def quota_fault(path: str, seen: ObservedQuota) -> str:
    """Returns why the volume can't have quotas and what to do; "" if it can."""
    if seen.enforced:
        return ""
    where = f"no use of {path} is limited: it is on {seen.file_system or 'no file system that can be read'}"
    if seen.file_system == "ext4":
        return (
            f"{where} ({seen.device}) without project quotas. Unmount it, run tune2fs -O project,quota {seen.device}, and "
            "mount it with the options usrquota,prjquota"
        )
    if seen.file_system == "xfs":
        return f"{where} ({seen.device}) without project quotas. Mount it with the options usrquota,prjquota"
    return f"{where}, on which Headway sets no quotas (it does on ext4 and XFS). Set them on its server"
