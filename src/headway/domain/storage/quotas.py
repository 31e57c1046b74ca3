"""Quotas of users on a volume: one project of the file system for each user's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# First project id of each volume; a user's is that plus the uid. Other programs use low ids.
HOME_PROJECTS = 1 << 30
SCRATCH_PROJECTS = 2 << 30


@dataclass(frozen=True, slots=True)
class DesiredQuota:
    """The limit of each user's folder on a volume. `limit`: bytes, 0 = none. A user's project is `first_project` plus the
    uid."""

    limit: int
    first_project: int
    uids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UserQuota:
    """One user's folder on a volume: the limit and the use of its project in bytes (limit 0: none), whether the folder
    belongs to the project, and whether the limit of all files of the user there, which the user can't evade, is as it
    should be (or the file system has no such limits)."""

    limit: int
    used: int
    assigned: bool
    guarded: bool = True


@dataclass(frozen=True, slots=True)
class ObservedQuota:
    """What a machine says of a volume's quotas. `enforced`: its file system limits projects; otherwise `users` is {}."""

    file_system: str  # type: "ext4"
    device: str
    enforced: bool
    users: Mapping[str, UserQuota] = field(default_factory=dict)
