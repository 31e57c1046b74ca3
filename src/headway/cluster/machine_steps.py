"""Turns the changes of one machine into the steps that node/ops carries out there, stage by stage. Pure except for the
bytes of secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping

from headway.catalog.node_images import slurm_release
from headway.changes.machine_changes import DesiredMachine
from headway.cluster.keys import secrets as cluster_secrets
from headway.cluster.remote_steps import Step, file_step, run_step
from headway.domain.changeset import Change
from headway.domain.machines.systemd_unit import Unit
from headway.images import recipe
from headway.render.ha import slurm_state_folder
from headway.render.monitoring import prometheus
from headway.render.slurm.candidate_check import candidate_check, lua_check
from headway.render.slurm.hooks.site_scripts import JOB_SUBMIT
from headway.render.system.mariadb import DATADIR
from headway.render.system.unit_list import RECONFIGURE
from headway.slurm.accounting.sacctmgr_commands import show_config_argv
from headway.slurm.scontrol import ping_argv

# A head starts its daemons before it mounts volumes of other machines (stage "outside"), a node after that. Both work
# without volumes that can't be mounted. A head's agent and Prometheus start last, because no node waits for them.
STAGES = ("software", "base", "database", "accounting", "controller", "outside", "node", "monitoring")
AFTER_CONTROLLER = STAGES[STAGES.index("controller") + 1 :]
# Daemons that Debian's packages start on every owned machine, also where its role does not need them.
DAEMONS = (
    "slurmctld.service", "slurmd.service", "slurmdbd.service", "slurmrestd.service", "mariadb.service", "prometheus.service",
    "prometheus-alertmanager.service", "nfs-server.service", "nftables.service",
)  # fmt: skip
SOFTWARE_S = 4000.0
STAGE_S = 300.0
CANDIDATE = "/run/headway/candidate"
# System users whose uid differs between images, with their folders on the head's volume.
_KEPT_OF = {"mysql": (DATADIR,), prometheus.USER: tuple(path for path, _, _ in prometheus.DIRS)}
_DATABASE = (
    "create database if not exists slurm_acct_db;"
    "create user if not exists slurm@localhost identified via unix_socket;"
    "grant all on slurm_acct_db.* to slurm@localhost;"
)
# A newer slurmdbd does not answer before it has converted all records, which takes hours on a large cluster.
CONVERT_S = 6 * 3600.0
QUOTAS_S = 6 * 3600.0
_WORKS = "select id from information_schema.processlist where user = 'slurm' and command <> 'Sleep'"
_CONVERTS = f'mariadb -N -e "{_WORKS}" | grep -q .'
_ENABLED = (".service", ".mount", ".socket")
# Skips the System V scripts that Debian's packages still contain: for each of them systemctl would reload all units
# twice.
_ENABLE = ("env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl", "--no-reload", "--quiet", "enable")
# Daemons that only some cluster files have; the others' unit files are never removed.
_OWN_DAEMON = re.compile(r"/etc/systemd/system/headway-[a-z-]+\.service")
_ACTION = {"unit.start": "start", "unit.restart": "restart", "unit.reload": "reload", "unit.enable": "start"}


def steps_by_stage(
    changes: Iterable[Change], desired: DesiredMachine, secrets: Mapping[str, str], *, fresh: bool
) -> dict[str, list[Step]]:
    """Returns the steps of each stage of bring-up. `fresh`: the machine was just created, so units that the image
    started are restarted instead of started."""
    rows = list(changes)
    stages: dict[str, list[Step]] = {stage: [] for stage in STAGES}
    switched = _files_of_running_slurmctld(rows, desired, fresh)
    files = [c for c in rows if c.kind == "file.write" and c.what not in switched]
    stages["software"] += _software_steps(rows, desired)
    base = stages["base"]
    base += _candidate_steps(rows, desired, secrets)
    base += [file_step(c.what, desired.files[c.what], _secret(desired, c.what, secrets)) for c in files]
    gone = [c.what for c in rows if c.kind == "file.remove" and c.what not in switched]
    detached = [path for path in gone if path.endswith(".mount")]
    base += [_stop_step(path) for path in gone if _OWN_DAEMON.fullmatch(path)]
    base += [{"op": "remove", "path": path} for path in gone if path not in detached]
    base += [{"op": "name", "name": c.what} for c in rows if c.kind == "machine.name"]
    managed: list[Step] = []
    if any(c.kind == "managed.write" for c in rows):
        managed.append({"op": "managed", "paths": sorted(desired.files)})
        base += [] if detached else managed
    touched = [c.what for c in rows if c.kind in ("file.write", "file.remove")]
    # Also before any unit starts, because an earlier run may have been killed right after it wrote the files that these
    # programs read.
    starting = any(c.kind in ("unit.start", "unit.restart") for c in rows)
    if starting or _under("/etc/sysusers.d/", touched):
        base.insert(_after_files(base), {"op": "run", "argv": ["systemd-sysusers"]})
    enabled = [c.what for c in rows if c.kind.startswith("unit.") and c.what.endswith(_ENABLED)]
    if enabled:  # before daemon_reload, so that systemd knows the change and does not warn that units changed on disk
        base.append({"op": "run", "argv": [*_ENABLE, *enabled]})
    if starting or _under("/etc/systemd/system/", touched):
        base.append({"op": "daemon_reload"})
    if starting or _under("/etc/tmpfiles.d/", touched):
        base.append({"op": "run", "argv": ["systemd-tmpfiles", "--create"], "ok": [0, 65, 73]})
    if any(unit.stage == "database" for unit in desired.units):
        base.append({"op": "seed", "sources": ["/var/lib/mysql", "/var/lib/mariadb"], "target": DATADIR})
        base += [{"op": "own", "paths": list(paths), "owner": owner} for owner, paths in _KEPT_OF.items()]
        if fresh:  # the database takes longest to start, so it starts while the rest is set up
            base.append({"op": "run", "argv": ["systemctl", "start", "--no-block", "mariadb.service"]})
    dirs = {
        c.what: {"op": "dir", "path": c.what, "owner": c.data["owner"], "mode": c.data["mode"]}
        for c in rows
        if c.kind == "dir.make"
    }
    # other folders are on volumes that these units mount
    base += [dirs.pop(path) for path in _mount_points(desired) if path in dirs]
    for stage in STAGES:
        stages[stage] += _unit_steps(rows, stage, fresh, switched, desired, secrets)
    if detached:  # after the agent has its new list: it would drain the node for a missing volume
        last = stages["monitoring" if any(unit.stage == "monitoring" for unit in desired.units) else "node"]
        unmounts: list[Step] = [{"op": "unmount", "unit": path.rpartition("/")[2]} for path in detached]
        last += unmounts  # while the unit file exists, so that an apply that is killed here repeats the unmount
        last += [{"op": "remove", "path": path} for path in detached]
        # A repair of the node may have mounted the volume again meanwhile. A unit that systemd does not know can't be
        # mounted.
        last += [*managed, {"op": "daemon_reload"}, *unmounts]
    base += dirs.values()
    base += [
        {"op": "home", "path": c.what, "user": c.data["user"], "uid": c.data["uid"]}
        for c in rows
        if c.kind == "home.make"
    ]
    # The cluster works without quotas, and a plan says why there are none. A large folder takes long the first time.
    stages["outside"] += [
        {"op": "quotas", "may_fail": True, "most_s": QUOTAS_S, **c.data} for c in rows if c.kind == "quota.set"
    ]
    return {stage: steps for stage, steps in stages.items() if _does_something(steps)}


def _stop_step(path: str) -> Step:
    """Returns the step that stops a daemon whose unit file is removed."""
    unit = path.rpartition("/")[2]
    return {"op": "run", "argv": ["systemctl", "--quiet", "disable", "--now", unit], "ok": [0, 1, 5]}


def _mount_points(desired: DesiredMachine) -> tuple[str, ...]:
    """Returns the folders that bind mounts need as their source. A mount whose source is missing does not start."""
    units = (file.text for path, file in desired.files.items() if path.endswith(".mount"))
    return tuple(line.removeprefix("What=") for text in units for line in text.splitlines() if line.startswith("What="))


def stage_timeout_s(stage: str, steps: Iterable[Step]) -> float:
    """Returns how long a stage with these steps may take, in seconds."""
    if stage == "software":
        return SOFTWARE_S
    rows = list(steps)
    starts = (step.get("take_up", step) for step in rows if step["op"] in ("units", "switch"))
    waits = (step.get("most_s", 0.0) for step in rows)
    return STAGE_S + max((start.get("timeout_s", 0.0) for start in starts), default=0.0) + max(waits, default=0.0)


def _software_steps(rows: list[Change], desired: DesiredMachine) -> list[Step]:
    """Returns the first steps on an owned machine: its present files are saved, packages installed, and Headway's own
    parts built."""
    kinds = {change.kind for change in rows}
    steps: list[Step] = []
    if "file.keep" in kinds:
        steps.append({"op": "keep", "paths": sorted({*desired.files, "/etc/hostname"})})
    if "package.install" in kinds:
        own = {unit.name for unit in desired.units}
        steps.append(
            {
                "op": "packages",
                "names": list(desired.packages),
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
    """Returns the index at which system users are created: after the files in /etc/sysusers.d, and before any file that
    these users own."""
    for index, step in enumerate(steps):
        if step["op"] == "file" and step["path"].startswith("/etc/sysusers.d/"):
            return index + 1
    return 0


def _secret(desired: DesiredMachine, path: str, secrets: Mapping[str, str]) -> bytes | None:
    name = desired.files[path].secret
    return cluster_secrets.secret_content(secrets, name) if name else None


def _files_of_running_slurmctld(rows: list[Change], desired: DesiredMachine, fresh: bool) -> set[str]:
    """Returns the files of a running slurmctld that change. They are written in the same step that activates them, so
    that the old files can be restored."""
    taken_up = any(c.kind in ("unit.restart", "unit.reload") and c.what == "slurmctld.service" for c in rows)
    if fresh or not taken_up:
        return set()
    unit = next(unit for unit in desired.units if unit.name == "slurmctld.service")
    own = set(unit.restart_on) | set(unit.reload_on)
    return {c.what for c in rows if c.kind in ("file.write", "file.remove") and c.what in own}


def _candidate_steps(rows: list[Change], desired: DesiredMachine, secrets: Mapping[str, str]) -> list[Step]:
    """Returns the step in which the real programs read the whole new Slurm configuration before anything is changed."""
    controller = next((unit for unit in desired.units if unit.name == "slurmctld.service"), None)
    if controller is None:
        return []
    own = {*controller.restart_on, *controller.reload_on}
    if not any(c.kind == "file.write" and c.what in own for c in rows):
        return []
    if any(c.kind == "unit.start" and c.what == "slurmctld.service" for c in rows):
        # No running slurmctld could be stopped by a fault, and its start is the test. A fault of Lua is found here already,
        # before anything is changed.
        script = desired.files.get(JOB_SUBMIT)
        files = [file_step(JOB_SUBMIT, script)] if script is not None else []
        step = {"op": "candidate", "folder": CANDIDATE, "files": files, "checks": lua_check(CANDIDATE)}
        return [step] if files else []
    files = [
        file_step(path, file, _secret(desired, path, secrets))
        for path, file in desired.files.items()
        if path == JOB_SUBMIT
        or (path.startswith("/etc/slurm/") and path.endswith(".conf") and not path.endswith("slurmdbd.conf"))
    ]
    for file in files:
        file.update(owner="root", group="root")
    return [{"op": "candidate", "folder": CANDIDATE, "files": files, "checks": candidate_check(CANDIDATE)}]


def _unit_steps(
    rows: list[Change],
    stage: str,
    fresh: bool,
    switched: set[str],
    desired: DesiredMachine,
    secrets: Mapping[str, str],
) -> list[Step]:
    steps: list[Step] = []
    for change in rows:
        if not change.kind.startswith("unit.") or change.data["stage"] != stage:
            continue
        name = change.what
        unit = next(unit for unit in desired.units if unit.name == name)
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
        elif name == "slurmctld.service" and slurm_state_folder.PROGRAM in desired.files:
            step["timeout_s"] = slurm_state_folder.START_S + 60
        if name == "slurmctld.service" and switched:
            own = [p for p in switched if p in desired.files]
            steps.append(
                {
                    "op": "switch",
                    "files": [file_step(p, desired.files[p], _secret(desired, p, secrets)) for p in own],
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
    """Returns whether one systemctl call can do both steps. systemd starts units in parallel, but a node's agent would
    slow its slurmd down."""
    alike = all(last.get(word) == step.get(word) for word in ("op", "action", "may_fail"))
    return alike and "argv" not in last and "argv" not in step and "slurmd.service" not in last["names"]


def _steps_after_start(name: str) -> list[Step]:
    """Returns the steps after the start of a daemon that wait until it answers."""
    if name == "mariadb.service":
        return [run_step(["mariadb", "-e", _DATABASE])]
    if name == "slurmdbd.service":
        return [wait_for_slurmdbd()]
    if name == "slurmctld.service":
        return [wait_step(ping_argv(), "slurmctld does not answer")]
    return []


def wait_for_slurmdbd() -> Step:
    """Returns the step that waits for slurmdbd, for as long as the database works on its queries."""
    answers = wait_step(show_config_argv(), "slurmdbd does not answer")
    return {**answers, "busy": ["sh", "-c", _CONVERTS], "most_s": CONVERT_S}


def _reload_step(unit: Unit) -> Step:
    """Returns the step that makes slurmctld send the configuration to every slurmd. slurmd gets it at its own start or
    at a reconfigure of slurmctld; after a mere restart of slurmctld every slurmd keeps the old one
    (src/slurmctld/controller.c, push_reconfig_to_slurmd)."""
    return run_step(list(unit.reload))


def save_accounts_step(slurm_version: str) -> Step:
    """Returns the step that makes slurmctld save the accounts it knows, which it otherwise does every few minutes. A
    second controller that takes over without slurmdbd reads them from there; if they were never saved, it does not
    start at all."""
    if slurm_release(slurm_version).reconfigures_everything:  # this restarts slurmctld
        return run_step(["sh", "-c", RECONFIGURE])
    return {"op": "units", "names": ["slurmctld.service"], "action": "restart", "stamps": {}}


def wait_step(argv: list[str], message: str) -> Step:
    """Returns the step that runs a command until it succeeds, for up to a minute."""
    return {"op": "wait", "argv": argv, "timeout_s": 60, "message": message}
