"""The SSH provider lists owned machines and their addresses from stored records, also when the inventory has
changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.cluster_changes import SLURM_CONF, DesiredState, changeset
from headway.changes.desired_accounts import desired_accounts
from headway.changes.machine_changes import DesiredMachine
from headway.cluster import observe
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import _host_keys
from headway.cluster.observe import observe_cluster
from headway.domain.changeset import ChangeSet, Disturbs
from headway.domain.cluster import Host
from headway.domain.machines.machine import Machine
from headway.domain.machines.managed_file import File
from headway.domain.machines.survey import DetectedHardware
from headway.errors import Unreachable
from headway.health.policy.slurm_actions import plan_actions
from headway.providers.ssh import provider as ssh_provider
from headway.providers.ssh.machine_records import ClaimedHost, MachineContainer
from headway.providers.ssh.provider import SshProvider
from headway.services.cluster import planning
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.servers.server_fakes import document

LAB = builders.cluster(2, 0, provider=SSH)
HOSTS = tuple(Host(name, f"127.0.0.{n}") for n, name in enumerate(LAB.machine_names, 1))
KEY = "ssh-ed25519 AAAA"
FOUND = DetectedHardware(8, 1, 8, 1, 32_000)


def provider(folder: Path, hosts: Sequence[Host] = HOSTS) -> SshProvider:
    """Of an inventory, where the machines of HOSTS have their places."""
    made = SshProvider(folder, hosts)
    if not made._kept.read_record("lab").machines:
        for host in HOSTS:
            made._kept.pin_host_key("lab", host.name, ClaimedHost(host, KEY))
    return made


def moved(name: str, **changes: Any) -> tuple[Host, ...]:
    return tuple(replace(host, **changes) if host.name == name else host for host in HOSTS)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the resolver knows."""
    known: dict[str, str] = {}

    async def address(name: str) -> str:
        if name[0].isdigit():
            return name
        if name not in known:
            raise Unreachable(f"host {name} has no address")
        return known[name]

    monkeypatch.setattr(ssh_provider, "_address", address)
    return known


@pytest.mark.parametrize("change", [{"address": "127.0.0.77"}, {"host_key": "ssh-ed25519 BBBB"}])
async def test_replaced_machine_stays_listed_until_apply(tmp_path: Path, change: dict[str, str]) -> None:
    """The apply may be refused, for a job that runs there: nobody may take the job's node for dead then."""
    before = {one.name: one for one in await provider(tmp_path).list("lab")}
    after = provider(tmp_path, moved("lab-1-2", **change))
    machines = {one.name: one for one in await after.list("lab")}
    assert machines == before
    assert await after.replaced("lab") == {"lab-1-2"}
    nodes = {name: replace(builders.node(name, "ALLOCATED", cpus_used=8), boot_time=5) for name in LAB.slot_names}
    assert plan_actions(LAB, machines, nodes, [builders.job(7, nodes=("lab-1-2",))], frozenset()) == []


async def test_changed_ssh_user_applies_at_once_to_kept_machine(tmp_path: Path) -> None:
    after = provider(tmp_path, moved("lab-1-2", user="ops"))
    assert [one.user for one in await after.list("lab") if one.name == "lab-1-2"] == ["ops"]
    assert await after.replaced("lab") == frozenset()


class Squeue:
    """A head whose controller says what runs where; nothing else answers."""

    async def remote(self, _: Machine, argv: Sequence[str], **__: Any) -> CommandResult:
        if argv[0] != "squeue":
            raise Unreachable("no answer")
        return CommandResult(tuple(argv), 0, "7 lab-1-2\n", "", 0.0)


async def planned(folder: Path, *members: str) -> ChangeSet:
    """Where lab-1-2 is to be another machine, of a cluster in which these slots are to have one."""
    context: Any = ClusterContext(provider(folder, moved("lab-1-2", address="127.0.0.77")), None, Squeue(), folder)  # type: ignore[arg-type]
    desired = DesiredMachine.build({SLURM_CONF: File("")}, {}, ())
    goal = DesiredState(LAB, {LAB.role_of(name): desired for name in LAB.machine_names}, desired_accounts(LAB), members)
    return changeset(goal, await observe_cluster(goal, context))


@pytest.fixture
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "RETRY_S", 0.0)


@pytest.mark.usefixtures("_retries_at_once")
async def test_plan_replaces_machine_and_names_its_running_jobs(tmp_path: Path) -> None:
    changes = await planned(tmp_path, *LAB.slot_names)
    (change,) = (one for one in changes.changes if one.where == "lab-1-2")
    assert (change.kind, change.disturbs, change.data["jobs"]) == ("machine.create", Disturbs.JOBS, [7])
    kept = planning._stored_plan(SimpleNamespace(clock=lambda: 1.0), document(), changes)  # type: ignore[arg-type]
    assert kept.busy == "lab-1-2"


@pytest.mark.usefixtures("_retries_at_once")
async def test_plan_deletes_replaced_machine_outside_wanted_slots(tmp_path: Path) -> None:
    (change,) = (one for one in (await planned(tmp_path, "lab-1-1")).changes if one.where == "lab-1-2")
    assert change.kind == "machine.delete"


async def test_host_keys_exclude_machine_to_be_replaced(tmp_path: Path) -> None:
    """Known already while the changes are told: else the others would not hear of the new one's."""
    cluster = replace(LAB, hosts=moved("lab-1-2", address="127.0.0.77"))
    context: Any = ClusterContext(provider(tmp_path, cluster.hosts), None, None, tmp_path)  # type: ignore[arg-type]
    assert set(await _host_keys(cluster, context)) == {LAB.head, "lab-1-1"}


async def test_unresolvable_host_name_keeps_other_machines_listed(tmp_path: Path, names: dict[str, str]) -> None:
    hosts = moved("lab-1-2", address="node2")
    made = provider(tmp_path, hosts)
    made._kept.pin_host_key("lab", "lab-1-2", ClaimedHost(hosts[2], KEY))
    listed = {one.name: one.address for one in await made.list("lab")}
    assert listed == {LAB.head: "127.0.0.1", "lab-1-1": "127.0.0.2", "lab-1-2": "node2"}
    await made.note("lab", {"lab-1-2": FOUND}, ())
    with pytest.raises(Unreachable):  # no file of the cluster can be made without
        await made.place(LAB)
    fewer = provider(tmp_path, hosts[:2])
    assert {one.name for one in await fewer.list("lab")} == set(listed)
    assert set((await fewer.place(builders.cluster(1, 0, provider=SSH))).addresses) == {LAB.head, "lab-1-1"}


async def test_unresolvable_host_keeps_address_of_last_apply(tmp_path: Path, names: dict[str, str]) -> None:
    names["node2"] = "127.0.0.9"
    hosts = moved("lab-1-2", address="node2")
    made = provider(tmp_path, hosts)
    made._kept.pin_host_key("lab", "lab-1-2", ClaimedHost(hosts[2], KEY))
    await made.note("lab", {"lab-1-2": FOUND}, ("/home",))
    assert await made.exports("lab") == ("/home",)
    names.clear()
    (one,) = (machine for machine in await made.list("lab") if machine.name == "lab-1-2")
    assert (one.address, one.found) == ("127.0.0.9", FOUND)
    assert (await made.place(LAB)).addresses["lab-1-2"] == "127.0.0.9"
    names["node2"] = "127.0.0.10"
    assert "127.0.0.10" in {machine.address for machine in await made.list("lab")}


async def test_machine_in_a_container_is_reached_by_its_own_port_and_key(tmp_path: Path) -> None:
    """The host is surveyed, claimed and rebooted; all other work goes to the machine in its container."""
    kept = provider(tmp_path, moved("lab-1-2", user="ops"))
    container = MachineContainer(2222, "ssh-ed25519 CCCC", "image-1")
    kept._kept.pin_host_key("lab", "lab-1-2", ClaimedHost(HOSTS[2], KEY, container=container))
    machine = {one.name: one for one in await provider(tmp_path, moved("lab-1-2", user="ops")).list("lab")}["lab-1-2"]
    assert (machine.user, machine.port, machine.host_key, machine.image) == (
        "root",
        2222,
        "ssh-ed25519 CCCC",
        "image-1",
    )
    assert machine.host is not None
    assert (machine.host.user, machine.host.port, machine.host.host_key) == ("ops", 22, KEY)
    assert await kept.candidate(LAB, "lab-1-2") == machine.host
    own = (await kept.place(LAB)).own
    assert own is not None
    assert (own.machine_ports, own.ssh_ports) == ({"lab-1-2": 2222}, (22, 2222))
    assert "systemctl status headway-machine" in kept.inspection_hint(machine)
