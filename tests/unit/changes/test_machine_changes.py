"""The changes of one machine are computed from its desired and observed state, without contacting it."""

from __future__ import annotations

from dataclasses import replace

from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.domain.changeset import Disturbs
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import NOT_OBSERVED, ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.systemd_unit import Unit

CONF = "/etc/slurm/slurm.conf"
KEY = "/etc/munge/munge.key"
UNITS = (
    Unit("munge.service", restart_on=(KEY,)),
    Unit("slurmctld.service", reload_on=(CONF,), reload=("scontrol", "reconfigure"), stage="controller"),
)
WANTED = DesiredMachine.build(
    {CONF: File("ClusterName=lab\n"), KEY: File("", 0o400, "munge", "munge", secret="munge_key")},
    {"munge_key": "d1"},
    UNITS,
)


def as_wanted(written: float = 100.0, started: float = 200.0) -> ObservedMachine:
    files = {p: ObservedFile(WANTED.digests[p], f.mode, f.owner, f.group, written) for p, f in WANTED.files.items()}
    units = {unit.name: ObservedUnit(True, True, started, 7, "") for unit in UNITS}
    return ObservedMachine(files, units, tuple(WANTED.files))


def kinds(seen: ObservedMachine, desired: DesiredMachine = WANTED) -> list[tuple[str, str]]:
    return [(c.kind, c.what) for c in machine_changes("lab-head", desired, seen)]


def test_machine_in_the_desired_state_has_no_changes() -> None:
    assert kinds(as_wanted()) == []


def test_empty_machine_gets_files_before_units() -> None:
    found = [kind for kind, _ in kinds(NOT_OBSERVED)]
    assert found == ["file.write", "file.write", "managed.write", "unit.start", "unit.start"]


def test_daemon_older_than_its_file_is_restarted_or_reloaded() -> None:
    """The trace of an apply that was killed between writing a file and telling the daemon."""
    assert kinds(as_wanted(written=300.0)) == [
        ("unit.restart", "munge.service"),
        ("unit.reload", "slurmctld.service"),
    ]


def test_controller_with_an_outdated_reload_stamp_is_reloaded() -> None:
    """It has begun since with the new files, and the nodes have the old ones: only its stamp shows that."""
    seen = as_wanted()
    stamped = {name: replace(unit, loaded="of before") for name, unit in seen.units.items()}
    assert kinds(replace(seen, units=stamped)) == [("unit.reload", "slurmctld.service")]


def test_daemon_with_a_current_reload_stamp_is_left_alone() -> None:
    seen = as_wanted(written=300.0)
    told = {name: replace(unit, loaded=WANTED.loaded[name]) for name, unit in seen.units.items()}
    assert kinds(replace(seen, units=told)) == []


def test_changed_file_reloads_or_restarts_by_its_effect() -> None:
    old = replace(as_wanted().files[CONF], digest="other")
    seen = replace(as_wanted(), files={**as_wanted().files, CONF: old})
    assert kinds(seen) == [
        ("file.write", CONF),
        ("managed.write", "list of Headway's files"),
        ("unit.reload", "slurmctld.service"),
    ]
    hard = replace(WANTED, effects={CONF: Disturbs.CONTROLLER_RESTART})
    last = list(machine_changes("lab-head", hard, seen))[-1]
    assert (last.kind, last.disturbs) == ("unit.restart", Disturbs.CONTROLLER_RESTART)


def test_config_change_that_ends_jobs_disturbs_jobs() -> None:
    seen = replace(as_wanted(), files={**as_wanted().files, CONF: replace(as_wanted().files[CONF], digest="other")})
    for effect, kind in ((Disturbs.RECONFIGURE, "unit.reload"), (Disturbs.CONTROLLER_RESTART, "unit.restart")):
        wanted = replace(WANTED, effects={CONF: effect}, ends={CONF: "partition debug is removed and Slurm ends job 4"})
        last = list(machine_changes("lab-head", wanted, seen))[-1]
        assert (last.kind, last.disturbs, last.why) == (kind, Disturbs.JOBS, wanted.ends[CONF])
        assert not [
            change for change in machine_changes("lab-head", wanted, as_wanted()) if change.disturbs is Disturbs.JOBS
        ]


def test_start_of_a_stopped_controller_that_ends_jobs_disturbs_jobs() -> None:
    """It finds them in its state folder, without their partition."""
    seen = replace(as_wanted(), files={**as_wanted().files, CONF: replace(as_wanted().files[CONF], digest="other")})
    off = replace(seen, units={**seen.units, UNITS[1].name: replace(seen.units[UNITS[1].name], active=False)})
    wanted = replace(WANTED, ends={CONF: "partition debug is removed and Slurm ends job 4"})
    last = list(machine_changes("lab-head", wanted, off))[-1]
    assert (last.kind, last.disturbs) == ("unit.start", Disturbs.JOBS)
    assert last.why == "is not running; partition debug is removed and Slurm ends job 4"
    last = list(machine_changes("lab-head", replace(WANTED, ends={CONF: ""}), off))[-1]
    assert (last.kind, last.disturbs, last.why) == ("unit.start", Disturbs.NOTHING, "is not running")


def test_controller_restart_for_a_changed_config_also_reconfigures_nodes() -> None:
    """They have their configuration from it, at their own start or by a reconfigure."""
    seen = replace(as_wanted(), files={**as_wanted().files, CONF: replace(as_wanted().files[CONF], digest="other")})
    hard = replace(WANTED, effects={CONF: Disturbs.CONTROLLER_RESTART})
    assert list(machine_changes("lab-head", hard, seen))[-1].data["reload"] is True
    own = replace(UNITS[1], restart_on=("/etc/drop-in",))
    files = {**WANTED.files, "/etc/drop-in": File("x")}
    both = DesiredMachine.build(files, {"munge_key": "d1"}, (UNITS[0], own))
    last = list(machine_changes("lab-head", both, seen))[-1]
    assert (last.kind, last.data["reload"]) == ("unit.restart", True)
    last = list(machine_changes("lab-head", both, as_wanted()))[-1]
    assert (last.kind, last.data["reload"]) == ("unit.restart", False)


def test_wrong_file_mode_counts_as_a_difference() -> None:
    seen = as_wanted()
    open_key = replace(seen.files[KEY], mode=0o444)
    assert ("file.write", KEY) in kinds(replace(seen, files={**seen.files, KEY: open_key}))


def test_changes_never_show_secrets() -> None:
    for change in machine_changes("lab-head", WANTED, NOT_OBSERVED):
        assert "d1" not in repr(change)


def test_managed_file_that_is_no_longer_wanted_is_removed() -> None:
    seen = replace(as_wanted(), managed=(*WANTED.files, "/etc/slurm/topology.conf"))
    assert ("file.remove", "/etc/slurm/topology.conf") in kinds(seen)


def test_processes_of_a_departed_user_are_ended() -> None:
    wanted = replace(WANTED, departed=("bob",))
    assert ("user.end", "bob") in kinds(replace(as_wanted(), sessions=("bob",)), wanted)
    assert kinds(as_wanted(), wanted) == []
