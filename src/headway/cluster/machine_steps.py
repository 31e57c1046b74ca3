"""Changes of one machine -> the steps node/ops carries out there, stage by stage. Pure but for secrets' bytes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from headway.catalog.releases import slurm_release
from headway.changes.machine_changes import DesiredMachine
from headway.cluster.keys import secrets as cluster_secrets
from headway.cluster.remote_steps import Step, file_step, run_step
from headway.domain.changeset import Change
from headway.domain.systemd_unit import Unit
from headway.images import recipe
from headway.render.ha import state_folder
from headway.render.monitoring import prometheus
from headway.render.slurm.candidate_check import candidate_check
from headway.render.system.mariadb import DATADIR
from headway.render.system.unit_list import RECONFIGURE
from headway.slurm.account_commands import show_config_argv
from headway.slurm.scontrol import ping_argv

# A head works before volumes of other machines are mounted, a node begins to after that; and both without those that can't be.
STAGES = ("software", "base", "database", "accounting", "controller", "outside", "node")
# Of the packages of a machine one owns: what Debian would start by itself, whatever the machine's role.
DAEMONS = (
    "slurmctld.service", "slurmd.service", "slurmdbd.service", "slurmrestd.service", "mariadb.service", "prometheus.service",
    "prometheus-alertmanager.service", "nfs-server.service", "nftables.service",
)  # fmt: skip
SOFTWARE_S = 4000.0
STAGE_S = 300.0
CANDIDATE = "/run/headway/candidate"
# Whose number images choose for themselves, and what they keep on the head's volume.
_KEPT_OF = {"mysql": (DATADIR,), prometheus.USER: tuple(path for path, _, _ in prometheus.DIRS)}
_DATABASE = (
    "create database if not exists slurm_acct_db;"
    "create user if not exists slurm@localhost identified via unix_socket;"
    "grant all on slurm_acct_db.* to slurm@localhost;"
)
# A newer slurmdbd answers nobody before it has taken all records over, hours of a large cluster's.
CONVERT_S = 6 * 3600.0
_WORKS = "select id from information_schema.processlist where user = 'slurm' and command <> 'Sleep'"
_CONVERTS = f'mariadb -N -e "{_WORKS}" | grep -q .'
_ENABLED = (".service", ".mount", ".socket")
# Without a word to the scripts of System V that Debian's packages still bring: for each of them systemd would be told twice to
# read all units anew.
_ENABLE = ("env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl", "--no-reload", "--quiet", "enable")
_ACTION = {"unit.start": "start", "unit.restart": "restart", "unit.reload": "reload", "unit.enable": "start"}


def steps_by_stage(
    changes: Iterable[Change], wanted: DesiredMachine, secrets: Mapping[str, str], *, fresh: bool
) -> dict[str, list[Step]]:
    """The steps of each stage of bring-up. `fresh`: the machine was just made, so units that the image started are
    restarted rather than started."""
    rows = list(changes)
    stages: dict[str, list[Step]] = {stage: [] for stage in STAGES}
    switched = _files_of_running_slurmctld(rows, wanted, fresh)
    files = [c for c in rows if c.kind == "file.write" and c.what not in switched]
    stages["software"] += _software_steps(rows, wanted)
    base = stages["base"]
    base += _candidate_steps(rows, wanted, secrets)
    base += [file_step(c.what, wanted.files[c.what], _secret(wanted, c.what, secrets)) for c in files]
    gone = [c.what for c in rows if c.kind == "file.remove" and c.what not in switched]
    detached = [path for path in gone if path.endswith(".mount")]
    base += [{"op": "remove", "path": path} for path in gone if path not in detached]
    base += [{"op": "name", "name": c.what} for c in rows if c.kind == "machine.name"]
    managed: list[Step] = []
    if any(c.kind == "managed.write" for c in rows):
        managed.append({"op": "managed", "paths": sorted(wanted.files)})
        base += [] if detached else managed
    touched = [c.what for c in rows if c.kind in ("file.write", "file.remove")]
    # Also before any unit starts: an earlier run may have been killed right after it wrote the files these read.
    starting = any(c.kind in ("unit.start", "unit.restart") for c in rows)
    if starting or _under("/etc/sysusers.d/", touched):
        base.insert(_after_files(base), {"op": "run", "argv": ["systemd-sysusers"]})
    enabled = [c.what for c in rows if c.kind.startswith("unit.") and c.what.endswith(_ENABLED)]
    if enabled:  # before the reload: systemd then knows of it, and nobody is told that units changed on disk
        base.append({"op": "run", "argv": [*_ENABLE, *enabled]})
    if starting or _under("/etc/systemd/system/", touched):
        base.append({"op": "daemon_reload"})
    if starting or _under("/etc/tmpfiles.d/", touched):
        base.append({"op": "run", "argv": ["systemd-tmpfiles", "--create"], "ok": [0, 65, 73]})
    if any(unit.stage == "database" for unit in wanted.units):
        base.append({"op": "seed", "sources": ["/var/lib/mysql", "/var/lib/mariadb"], "target": DATADIR})
        base += [{"op": "own", "paths": list(paths), "owner": owner} for owner, paths in _KEPT_OF.items()]
        if fresh:  # the database needs the longest to start: it does so while the rest is set up
            base.append({"op": "run", "argv": ["systemctl", "start", "--no-block", "mariadb.service"]})
    dirs = {
        c.what: {"op": "dir", "path": c.what, "owner": c.data["owner"], "mode": c.data["mode"]}
        for c in rows
        if c.kind == "dir.make"
    }
    base += [dirs.pop(path) for path in _mount_points(wanted) if path in dirs]  # others lie on what these units mount
    for stage in STAGES:
        stages[stage] += _unit_steps(rows, stage, fresh, switched, wanted, secrets)
    if detached:  # once the agent knows: it would take the node out for a volume that is not there
        last = stages["controller" if any(unit.stage == "controller" for unit in wanted.units) else "node"]
        unmounts: list[Step] = [{"op": "unmount", "unit": path.rpartition("/")[2]} for path in detached]
        last += unmounts  # while its file is there, so that an apply that is killed here begins with it again
        last += [{"op": "remove", "path": path} for path in detached]
        # A repair of the node may have mounted it once more meanwhile; what systemd doesn't know nobody can mount.
        last += [*managed, {"op": "daemon_reload"}, *unmounts]
    base += dirs.values()
    base += [
        {"op": "home", "path": c.what, "user": c.data["user"], "uid": c.data["uid"]}
        for c in rows
        if c.kind == "home.make"
    ]
    return {stage: steps for stage, steps in stages.items() if _does_something(steps)}


def _mount_points(wanted: DesiredMachine) -> tuple[str, ...]:
    """Folders that mounts show elsewhere: a mount whose folder is missing does not start."""
    units = (file.text for path, file in wanted.files.items() if path.endswith(".mount"))
    return tuple(line.removeprefix("What=") for text in units for line in text.splitlines() if line.startswith("What="))


def stage_timeout_s(stage: str, steps: Iterable[Step]) -> float:
    """How long a stage of these steps may take."""
    if stage == "software":
        return SOFTWARE_S
    rows = list(steps)
    starts = (step.get("take_up", step) for step in rows if step["op"] in ("units", "switch"))
    waits = (step.get("most_s", 0.0) for step in rows)
    return STAGE_S + max((start.get("timeout_s", 0.0) for start in starts), default=0.0) + max(waits, default=0.0)


def _software_steps(rows: list[Change], wanted: DesiredMachine) -> list[Step]:
    """On a machine one owns, before anything else: what was there is kept, packages come, Headway's parts are made."""
    kinds = {change.kind for change in rows}
    steps: list[Step] = []
    if "file.keep" in kinds:
        steps.append({"op": "keep", "paths": sorted({*wanted.files, "/etc/hostname"})})
    if "package.install" in kinds:
        own = {unit.name for unit in wanted.units}
        steps.append(
            {
                "op": "packages",
                "names": list(wanted.packages),
                "keep_off": [unit for unit in DAEMONS if unit not in own],
            }
        )
    if "parts.make" in kinds:
        archive, stamp = recipe.own_parts_archive()
        steps.append({"op": "parts", "b64": base64.b64encode(archive).decode(), "stamp": stamp})
    return steps


def _under(folder: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(folder) for path in paths)


def _does_something(steps: list[Step]) -> bool:
    return any(step["op"] not in ("seed", "own") for step in steps)


def _after_files(steps: list[Step]) -> int:
    """System users are made before any file that they own is written."""
    for index, step in enumerate(steps):
        if step["op"] == "file" and step["path"].startswith("/etc/sysusers.d/"):
            return index + 1
    return 0


def _secret(wanted: DesiredMachine, path: str, secrets: Mapping[str, str]) -> bytes | None:
    name = wanted.files[path].secret
    return cluster_secrets.secret_content(secrets, name) if name else None


def _files_of_running_slurmctld(rows: list[Change], wanted: DesiredMachine, fresh: bool) -> set[str]:
    """Files of a slurmctld that runs: written together with taking them up, so that the old ones can come back."""
    taken_up = any(c.kind in ("unit.restart", "unit.reload") and c.what == "slurmctld.service" for c in rows)
    if fresh or not taken_up:
        return set()
    unit = next(unit for unit in wanted.units if unit.name == "slurmctld.service")
    own = set(unit.restart_on) | set(unit.reload_on)
    return {c.what for c in rows if c.kind in ("file.write", "file.remove") and c.what in own}


def _candidate_steps(rows: list[Change], wanted: DesiredMachine, secrets: Mapping[str, str]) -> list[Step]:
    """The whole new Slurm configuration is read by the real programs before anything is touched."""
    controller = next((unit for unit in wanted.units if unit.name == "slurmctld.service"), None)
    if controller is None:
        return []
    own = {*controller.restart_on, *controller.reload_on}
    if not any(c.kind == "file.write" and c.what in own for c in rows):
        return []
    if any(c.kind == "unit.start" and c.what == "slurmctld.service" for c in rows):
        return []  # nothing works that a fault could stop: slurmctld's own start is the trial
    files = [
        file_step(path, file, _secret(wanted, path, secrets))
        for path, file in wanted.files.items()
        if path.startswith("/etc/slurm/") and path.endswith(".conf") and not path.endswith("slurmdbd.conf")
    ]
    for file in files:
        file.update(owner="root", group="root")
    return [{"op": "candidate", "folder": CANDIDATE, "files": files, "checks": candidate_check(CANDIDATE)}]


def _unit_steps(
    rows: list[Change],
    stage: str,
    fresh: bool,
    switched: set[str],
    wanted: DesiredMachine,
    secrets: Mapping[str, str],
) -> list[Step]:
    steps: list[Step] = []
    for change in rows:
        if not change.kind.startswith("unit.") or change.data["stage"] != stage:
            continue
        name = change.what
        unit = next(unit for unit in wanted.units if unit.name == name)
        action = _ACTION[change.kind]
        if fresh and stage == "base" and name.endswith(".service"):
            action = "restart"
        step: Step = {
            "op": "units",
            "names": [name],
            "action": action,
            "stamps": {name: change.data["loaded"]},
            **({"may_fail": True} if unit.may_fail else {}),
        }
        if action == "reload" and unit.reload:
            step["argv"] = list(unit.reload)
        elif name == "slurmctld.service" and state_folder.PROGRAM in wanted.files:
            step["timeout_s"] = state_folder.START_S + 60
        if name == "slurmctld.service" and switched:
            own = [p for p in switched if p in wanted.files]
            steps.append(
                {
                    "op": "switch",
                    "files": [file_step(p, wanted.files[p], _secret(wanted, p, secrets)) for p in own],
                    "remove": sorted(switched - set(own)),
                    "take_up": step,
                    "probe": {
                        "argv": ping_argv(),
                        "timeout_s": 30,
                        "message": "slurmctld does not answer",
                    },
                    **({"then": _reload_step(unit)} if change.data.get("reload") and unit.reload else {}),
                }
            )
            continue
        after = _steps_after_start(name) + ([_reload_step(unit)] if change.data.get("reload") and unit.reload else [])
        if steps and not after and _can_join(steps[-1], step):
            steps[-1]["names"] = steps[-1]["names"] + step["names"]
            steps[-1]["stamps"] |= step["stamps"]
            continue
        steps.append(step)
        steps += after
    return steps


def _can_join(last: Step, step: Step) -> bool:
    """Whether one systemctl call can do both: systemd starts units side by side."""
    alike = all(last.get(word) == step.get(word) for word in ("op", "action", "may_fail"))
    return alike and "argv" not in last and "argv" not in step


def _steps_after_start(name: str) -> list[Step]:
    """What follows the start of a daemon: others wait until it answers."""
    if name == "mariadb.service":
        return [run_step(["mariadb", "-e", _DATABASE])]
    if name == "slurmdbd.service":
        return [wait_for_slurmdbd()]
    if name == "slurmctld.service":
        return [_wait_step(ping_argv(), "slurmctld does not answer")]
    return []


def wait_for_slurmdbd() -> Step:
    """Waits for slurmdbd, as long as the database works for it."""
    answers = _wait_step(show_config_argv(), "slurmdbd does not answer")
    return {**answers, "busy": ["sh", "-c", _CONVERTS], "most_s": CONVERT_S}


def _reload_step(unit: Unit) -> Step:
    """slurmd has its configuration from slurmctld: at its own start, or when that is told to read its files again. One that is
    merely started anew leaves all slurmd with the old one (src/slurmctld/controller.c, push_reconfig_to_slurmd)."""
    return run_step(list(unit.reload))


def save_accounts_step(slurm_version: str) -> Step:
    """Makes slurmctld write down the accounts it knows, which it does every few minutes by itself. A second controller that
    takes over without slurmdbd has them from there; where they never were written, it does not come up at all."""
    if slurm_release(slurm_version).reconfigures_everything:  # which begins slurmctld anew
        return run_step(["sh", "-c", RECONFIGURE])
    return {"op": "units", "names": ["slurmctld.service"], "action": "restart", "stamps": {}}


def _wait_step(argv: list[str], message: str) -> Step:
    return {"op": "wait", "argv": argv, "timeout_s": 60, "message": message}
