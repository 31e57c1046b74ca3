"""What of a machine's desired state depends on single users, and what of it must change. An apply does it with everything else;
cluster/accounts/user_teams.py does only this, for users who come or change their teams between two applies. Pure.

Not in it are the lines of accounts (passwd, group, shadow): node/ops/user_locks.py changes them line by line, because a user may
be locked at the same moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.domain.changeset import Change
from headway.domain.machines.observed_state import ObservedMachine
from headway.domain.machines.systemd_unit import Unit
from headway.render.files_by_role import USER_RULES
from headway.render.system.login.users import KEYS

_KINDS = ("dir.make", "home.make", "quota.set")


def user_part(desired: DesiredMachine, users: Collection[str], keep_keys_of: Collection[str] = ()) -> DesiredMachine:
    """Returns the part of the desired state that depends on these users: SSH keys, rules that name users with the units that
    load them, homes, folders and quotas. `keep_keys_of`: users whose file of keys is left alone."""
    units = tuple(unit for unit in desired.units if not USER_RULES.isdisjoint(unit.reload_on))
    keys = {f"{KEYS}/{user}" for user in users if user not in keep_keys_of}
    files = keys.union(*map(_files_of, units))
    homes = tuple(home for home in desired.homes if home[1] in users)
    owners = {str(uid) for _, _, uid in homes}
    return replace(
        desired,
        files={path: file for path, file in desired.files.items() if path in files},
        units=units,
        homes=homes,
        dirs=tuple(folder for folder in desired.dirs if folder[1] in owners),
        quotas={
            path: replace(quota, uids={user: uid for user, uid in quota.uids.items() if user in users})
            for path, quota in desired.quotas.items()
        },
        departed=(),
        packages=(),
        parts="",
    )


def user_changes(name: str, part: DesiredMachine, seen: ObservedMachine) -> list[Change]:
    """Returns what must change on a machine. `part`: what `user_part` returns. Rules of a unit whose other files differ too
    are left to the apply that has not brought these files yet."""
    rows = list(machine_changes(name, part, seen))
    others = {row.what for row in rows if row.kind == "file.write"} - USER_RULES
    unready = [unit for unit in part.units if not others.isdisjoint(_files_of(unit))]
    left = {unit.name for unit in unready}.union(*map(_files_of, unready))
    wanted = (row for row in rows if row.kind in ("file.write", *_KINDS) or row.kind.startswith("unit."))
    return [row for row in wanted if row.what not in left]


def _files_of(unit: Unit) -> set[str]:
    return {*unit.restart_on, *unit.reload_on}
