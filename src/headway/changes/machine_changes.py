"""Computes what must change on one machine: files, homes, units. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.changes.quota_changes import quota_changes
from headway.domain.changeset import Change, Disturbs
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import NOT_OBSERVED, ObservedMachine
from headway.domain.machines.systemd_unit import Unit
from headway.domain.storage.quotas import DesiredQuota


@dataclass(frozen=True)
class DesiredMachine:
    """The desired state of a machine. `digests` holds every file's sha256, also of secrets ("": not created yet)."""

    files: Mapping[str, File]
    digests: Mapping[str, str]
    units: tuple[Unit, ...]
    dirs: tuple[tuple[str, str, int], ...] = ()  # (path, owner, mode), created once
    homes: tuple[tuple[str, str, int], ...] = ()  # (path, user, uid), created once
    departed: tuple[str, ...] = ()  # users who left and whose processes are ended
    loaded: Mapping[str, str] = field(default_factory=dict)  # unit -> digest of the files that it must have read
    packages: tuple[str, ...] = ()  # packages that an owned machine must have
    quotas: Mapping[str, DesiredQuota] = field(default_factory=dict)  # by volume, on the first head
    parts: str = ""  # digest of Headway's own parts on an owned machine; "": the image contains them
    effects: Mapping[str, Disturbs] = field(default_factory=dict)  # file -> what activating its change disturbs
    ends: Mapping[str, str] = field(default_factory=dict)  # file -> jobs that end when its change is activated, and why
    unread: Mapping[str, str] = field(default_factory=dict)  # file -> why the present file can't be read

    @staticmethod
    def build(
        files: Mapping[str, File],
        secret_digests: Mapping[str, str],
        units: tuple[Unit, ...],
        **others: object,
    ) -> DesiredMachine:
        """Returns the desired machine, with the digests of its files and of what each unit must have read."""
        digests = {
            path: secret_digests.get(file.secret, "") if file.secret else file.digest for path, file in files.items()
        }
        loaded = {unit.name: _loaded_digest(unit, digests) for unit in units}
        return DesiredMachine(files, digests, units, loaded=loaded, **others)  # type: ignore[arg-type]


def _loaded_digest(unit: Unit, digests: Mapping[str, str]) -> str:
    text = "\n".join(f"{path} {digests.get(path, '')}" for path in (*unit.restart_on, *unit.reload_on))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def machine_changes(name: str, desired: DesiredMachine, seen: ObservedMachine) -> Iterator[Change]:
    """Yields the changes in the order of execution: files, folders and homes, quotas, removed files, units."""
    yield from _software(name, desired, seen)
    changed = [path for path, file in desired.files.items() if _differs(path, file, desired, seen)]
    for path in changed:
        yield Change("file.write", name, path, _why_file(path, desired, seen), data={"path": path})
    for path, owner, mode in desired.dirs:
        if path not in seen.dirs:
            yield Change("dir.make", name, path, "is missing", data={"path": path, "owner": owner, "mode": mode})
    for path, user, uid in desired.homes:
        if path not in seen.dirs:
            yield Change(
                "home.make",
                name,
                path,
                f"{user} has no home yet",
                data={"path": path, "user": user, "uid": uid},
            )
    yield from quota_changes(name, desired.quotas, seen.quotas)
    for path in seen.managed:
        if path not in desired.files:
            if path.endswith(".mount"):
                why = "is detached: running programs keep their open files there and can't open others"
                yield Change("file.remove", name, path, why, Disturbs.JOBS)
            else:
                yield Change("file.remove", name, path, "is no longer part of the cluster file")
    if changed or set(seen.managed) != set(desired.files):
        yield Change("managed.write", name, "list of Headway's files", "files were added or removed")
    for user in desired.departed:
        if user in seen.sessions:
            yield Change("user.end", name, user, "left the cluster file and still has processes", Disturbs.NOTHING)
    changed_set = set(changed)
    for unit in desired.units:
        change = _unit_change(name, unit, desired, seen, changed_set)
        if change is not None:
            yield change


def _software(name: str, desired: DesiredMachine, seen: ObservedMachine) -> Iterator[Change]:
    """Yields the changes to the software of an owned machine. A machine that was never observed may lack all
    packages."""
    if desired.packages and set(desired.files) - set(seen.managed):
        yield Change("file.keep", name, "existing files", "they are restored when the machine is returned")
    missing = desired.packages if seen is NOT_OBSERVED else seen.missing
    if missing:
        count = f"{len(missing)} of {len(desired.packages)}"
        yield Change(
            "package.install",
            name,
            "packages",
            f"{count} may be missing" if seen is NOT_OBSERVED else f"{count} are missing",
        )
    if desired.parts != seen.parts and desired.parts:
        yield Change("parts.make", name, "plugins", "are not there" if not seen.parts else "are of another Headway")
    if desired.parts and seen.hostname != name:
        was = seen.hostname or "the former name"
        yield Change("machine.name", name, name, f"replaces {was}, which is restored when the machine is returned")


def _differs(path: str, file: File, desired: DesiredMachine, seen: ObservedMachine) -> bool:
    found = seen.files.get(path)
    return (
        found is None
        or found.digest != desired.digests[path]
        or found.mode != file.mode
        or found.owner != file.owner
        or found.group != file.group
    )


def _why_file(path: str, desired: DesiredMachine, seen: ObservedMachine) -> str:
    found = seen.files.get(path)
    if found is None:
        return "is missing"
    if path in desired.unread:
        return f"can't be parsed and is replaced: {desired.unread[path]}"
    return "differs from the cluster file" if found.digest != desired.digests[path] else "has another owner or mode"


def _unit_change(
    name: str, unit: Unit, desired: DesiredMachine, seen: ObservedMachine, changed: set[str]
) -> Change | None:
    found = seen.units.get(unit.name)
    data = {"unit": unit.name, "loaded": desired.loaded[unit.name], "stage": unit.stage}
    ends = "; ".join(desired.ends[path] for path in (*unit.restart_on, *unit.reload_on) if desired.ends.get(path))
    # a stopped slurmctld has kept its jobs, and ends them when it starts with the new file
    if found is None or not found.active:
        disturbs, why = (Disturbs.JOBS, f"is not running; {ends}") if ends else (Disturbs.NOTHING, "is not running")
        return Change("unit.start", name, unit.name, why, disturbs, data=data)
    current = found.loaded == desired.loaded[unit.name]
    again = not current and _stale(unit.restart_on, seen, found.started, changed)
    # The daemon reads its files at its start, but slurmd on the nodes only gets them by a reload. A stamp of older
    # files says that this reload was not done.
    untold = bool(unit.reload and found.loaded)
    reload = not current and (untold or _stale(unit.reload_on, seen, found.started, changed))
    if again:
        disturbs, why = (Disturbs.JOBS, ends) if ends else (unit.disturbs, "started before its files changed")
        return Change("unit.restart", name, unit.name, why, disturbs, data={**data, "reload": reload})
    if reload:
        effect = max(
            (desired.effects[path] for path in unit.reload_on if path in desired.effects),
            key=list(Disturbs).index,
            default=Disturbs.RECONFIGURE,
        )
        disturbs = Disturbs.JOBS if ends else effect
        if effect is Disturbs.CONTROLLER_RESTART:
            unread = any(path in desired.unread for path in unit.reload_on)
            why = ends or ("its file can't be parsed" if unread else "a changed setting is read only at start")
            return Change("unit.restart", name, unit.name, why, disturbs, data={**data, "reload": True})
        return Change("unit.reload", name, unit.name, ends or "has not read its changed files yet", disturbs, data=data)
    if not found.enabled:
        return Change("unit.enable", name, unit.name, "would not start at boot", data=data)
    return None


def _stale(paths: tuple[str, ...], seen: ObservedMachine, started: float, changed: set[str]) -> bool:
    """Returns whether one of the files changes now, or changed after the unit had started."""
    return any(path in changed or (path in seen.files and seen.files[path].ctime > started) for path in paths)
