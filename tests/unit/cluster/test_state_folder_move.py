"""While Slurm's state moves to another folder, the second controller is stopped and restarted only if that is safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headway.catalog.providers import SSH
from headway.changes.cluster_changes import DesiredState
from headway.changes.desired_accounts import desired_accounts
from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.cluster import remote_steps
from headway.cluster.accounts import slurm_accounts
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.domain.changeset import ChangeSet
from headway.domain.machines.machine import Machine
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import Observed, ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.systemd_unit import Unit
from headway.errors import Unreachable
from headway.render.ha import slurm_state_folder
from headway.transport.process import CommandResult
from tests.support.clusters import builders

TWO = replace(builders.cluster(provider=SSH), controllers=2)
FIRST, SECOND = TWO.heads
OLD, NEW = "now=/old\n", "now=/new\n"
STOP = f"{SECOND} systemctl stop slurmctld.service"
START = f"{SECOND} systemctl start slurmctld.service"
UNIT = Unit("slurmctld.service", restart_on=(slurm_state_folder.PROGRAM,), stage="controller")
WANTED = DesiredMachine.build({slurm_state_folder.PROGRAM: File(NEW, 0o755)}, {}, (UNIT,))
"""Of both heads."""


def seen(text: str | None) -> ObservedMachine:
    """A head whose slurmctld runs with this program."""
    file = ObservedFile(File(text or "").digest, 0o755, "root", "root", 1.0)
    return ObservedMachine(
        files={} if text is None else {slurm_state_folder.PROGRAM: file},
        units={UNIT.name: ObservedUnit(True, True, 2.0, 7, WANTED.loaded[UNIT.name] if text == NEW else "of before")},
        managed=(slurm_state_folder.PROGRAM,),
    )


class Ssh:
    """The first head as it is when its stage has failed: where its state is, and whether its slurmctld runs."""

    def __init__(self) -> None:
        self.is_at, self.active, self.answers = "/old\n", False, True

    async def remote(self, machine: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
        assert machine.name == FIRST
        if not self.answers:
            raise Unreachable(f"{FIRST} does not answer")
        if argv[0] == "cat":
            assert argv[1] == slurm_state_folder.LAST
            return CommandResult(tuple(argv), 0, self.is_at, "", 0.0)
        assert list(argv) == ["systemctl", "is-active", "slurmctld.service"]
        return CommandResult(tuple(argv), 0, "active\n" if self.active else "activating\n", "", 0.0)


async def set_up(
    monkeypatch: pytest.MonkeyPatch,
    heads: dict[str, ObservedMachine],
    *,
    fails: str = "",
    ssh: Ssh | None = None,
    at: str = "",
    then: Callable[[], None] = lambda: None,
) -> list[str]:
    """What was done on which head, in the head's own set-up; `fails`: a head on which nothing works. `at`: the step at which
    the first head fails, `then`: what is so afterwards."""
    did: list[str] = []

    async def perform(_: Any, machine: Machine, steps: list[dict[str, Any]], **__: Any) -> tuple[str, ...]:
        if machine.name == fails:
            raise remote_steps.RemoteStepFailed(f"{machine.name}: no answer")
        if at and any(step["op"] == at for step in steps):
            then()
            raise remote_steps.RemoteStepFailed(f"{machine.name}: slurmctld does not come up")
        did.extend(f"{machine.name} {' '.join(step['argv']) if step['op'] == 'run' else step['op']}" for step in steps)
        return ()

    async def report(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(remote_steps, "run_steps", perform)
    nothing: Any = None
    goal = DesiredState(TWO, {TWO.role_of(name): WANTED for name in TWO.heads}, desired_accounts(TWO))
    machines = {name: builders.machine(name) for name in TWO.heads}
    rows = [change for name, one in heads.items() for change in machine_changes(name, WANTED, one)]
    place: Any = None
    run = ChangeSetExecution(
        goal,
        ClusterContext(nothing, nothing, cast(Any, ssh or Ssh()), Path()),
        report,
        place,
        {},
        Observed(machines, heads),
        ChangeSet("lab", tuple(rows)),
    )
    run.machines.update(machines)
    monkeypatch.setattr(slurm_accounts, "update_accounts", report)
    await run._guard(FIRST, run._set_up(FIRST, heads[FIRST], fresh=False))
    assert bool(run.failures) == bool(fails or at)
    return did


async def test_second_controller_is_stopped_before_the_first_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    did = await set_up(monkeypatch, {FIRST: seen(OLD), SECOND: seen(OLD)})
    assert did[did.index(f"{FIRST} switch") - 1] == STOP


async def test_first_head_does_not_switch_if_the_second_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    did = await set_up(monkeypatch, {FIRST: seen(OLD), SECOND: seen(OLD)}, fails=SECOND)
    assert f"{FIRST} switch" not in did


async def test_second_controller_restarts_if_the_state_did_not_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    did = await set_up(monkeypatch, {FIRST: seen(OLD), SECOND: seen(OLD)}, at="switch")
    assert did[-3:] == [STOP, f"{FIRST} systemctl stop slurmctld.service", START], "it may be copying still"
    ssh = Ssh()
    ssh.active = True  # the folder is the same, only the program is another
    assert (await set_up(monkeypatch, {FIRST: seen(OLD), SECOND: seen(OLD)}, at="switch", ssh=ssh))[-2:] == [
        STOP,
        START,
    ]


@pytest.mark.parametrize(("field", "value"), [("is_at", "/new\n"), ("answers", False)])
async def test_second_controller_stays_stopped_if_the_state_may_have_moved(
    monkeypatch: pytest.MonkeyPatch, field: str, value: object
) -> None:
    ssh = Ssh()
    did = await set_up(
        monkeypatch,
        {FIRST: seen(OLD), SECOND: seen(OLD)},
        at="switch",
        ssh=ssh,
        then=lambda: setattr(ssh, field, value),
    )
    assert STOP in did
    assert START not in did


@pytest.mark.parametrize(
    "second",
    [
        {SECOND: seen(NEW)},  # nothing would start it again
        {SECOND: seen(None)},  # it is new
        {},  # it did not answer
    ],
)
async def test_second_controller_without_folder_change_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch, second: dict[str, ObservedMachine]
) -> None:
    did = await set_up(monkeypatch, {FIRST: seen(OLD), **second})
    assert f"{FIRST} switch" in did
    assert STOP not in did
