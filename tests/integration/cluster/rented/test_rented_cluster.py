"""Machines are rented side by side, get host keys of their own over SSH, and keep their leases; a plan says what it would
rent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS
from headway.cluster.context import ClusterContext
from headway.cluster.keys.secrets import host_key_name, new_key, public_key
from headway.cluster.owned import gpu_drivers, machine_claims
from headway.cluster.rented import missing_machines
from headway.cluster.rented.leases import renew_leases
from headway.cluster.rented.missing_machines import rent_and_claim, rent_missing
from headway.cluster.rented.plan_notes import with_rental_notes
from headway.domain.changeset import Change, ChangeSet
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, Refused, Unreachable
from headway.providers.cloud.provider import CloudProvider
from headway.providers.cloud.refusals import NoCapacity
from tests.support.cloud.fake_cloud import FakeCloud
from tests.support.clusters import builders

SETTINGS = CloudSettings("r", types={"cpu-64": ("big",)}, head_types=("little",), image="image")
CLUSTER = builders.cluster(name="lab", nodes=2, spares=0, plan=load_catalogue()["cpu-64"], provider=AWS)
NAMES = CLUSTER.machine_names
KEYS = {host_key_name(name): new_key() for name in NAMES} | {"bootstrap_key": new_key()}


def line(key: str) -> str:
    return " ".join(public_key(key).split()[:2])


class Wire:
    """Stands in for the SSH connections and for what machines show on them: name -> the key that a machine answers
    with. `dead`: machines that do not answer."""

    def __init__(self, provider: CloudProvider) -> None:
        self.provider = provider
        self.shown: dict[str, str] = {}
        self.dead: set[str] = set()
        self.closes: dict[str, int] = {}  # machine -> commands during which its connection is closed
        self.ran: list[tuple[str, str]] = []

    async def first_host_key(self, machine: Machine, own: str) -> Machine:
        shown = self.shown.setdefault(machine.name, machine.host_key)
        assert shown in (machine.host_key, line_of(own))
        return replace(machine, host_key=shown)

    async def drop(self, name: str) -> None: ...

    async def wait_ready(self, machine: Machine, *, timeout_s: float) -> None:
        assert machine.host_key == self.shown[machine.name]

    async def remote(self, machine: Machine, argv: Sequence[str], **options: Any) -> Any:
        if machine.name in self.dead:
            raise Unreachable(f"{machine.name} does not answer")
        if self.closes.get(machine.name):
            self.closes[machine.name] -= 1
            raise Unreachable(f"{machine.name} did not start {argv[0]}: SSH connection closed")
        self.ran.append((machine.name, argv[-1].splitlines()[-1]))
        if options.get("input"):
            self.shown[machine.name] = line(options["input"].decode())


def line_of(public: str) -> str:
    return " ".join(public.split()[:2])


class Site:
    def __init__(self, folder: Path) -> None:
        self.cloud = FakeCloud()
        self.provider = CloudProvider(AWS, folder, SETTINGS, self.cloud)
        self.wire = Wire(self.provider)
        self.provider.first_host_key = self.wire.first_host_key  # type: ignore[method-assign]
        self.context = ClusterContext(self.provider, None, self.wire, folder)  # type: ignore[arg-type]
        self.told: list[str] = []

    async def report(self, step: str, text: str, **_: object) -> None:
        self.told.append(f"{step}: {text}")

    async def rent(self, *names: str) -> None:
        await rent_missing(CLUSTER, self.context, self.report, KEYS, names or NAMES)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_each_machine_gets_a_key_that_its_user_data_does_not_have(site: Site) -> None:
    await site.rent()
    assert sorted(one.claim.machine for one in site.cloud.living) == sorted(NAMES)
    assert site.wire.shown == {name: line(KEYS[host_key_name(name)]) for name in NAMES}
    for order, _ in site.cloud.orders.values():
        assert KEYS[host_key_name(order.machines)] not in order.user_data
        assert public_key(KEYS["bootstrap_key"]).split()[1] in order.user_data
    rented = await site.provider.rented(CLUSTER)
    assert {name: machine.host_key for name, machine in rented.items()} == site.wire.shown
    calls = len(site.cloud.calls)
    await site.rent()
    assert "launch" not in site.cloud.calls[calls:]


async def test_daemon_that_cloud_init_restarts_is_asked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first boot of some images restarts the SSH daemon after it has answered, which closes connections."""
    monkeypatch.setattr(missing_machines, "_RETRY_S", 0.0)
    site.wire.closes = dict.fromkeys(NAMES, 2)
    await site.rent()
    assert site.wire.shown == {name: line(KEYS[host_key_name(name)]) for name in NAMES}
    monkeypatch.setattr(missing_machines, "_BOOT_S", 0.0)
    await site.provider.give_up("lab", NAMES[1])
    site.wire.shown.clear()
    site.wire.closes = {NAMES[1]: 1}
    with pytest.raises(Unreachable, match="SSH connection closed"):
        await site.rent(NAMES[1])


async def test_machine_that_never_answers_is_reported_with_its_console(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(machine: Machine, _: str) -> Machine:
        raise Unreachable(f"{machine.name} does not answer", hint="apply again")

    site.provider.first_host_key = silent  # type: ignore[method-assign]
    monkeypatch.setattr(missing_machines, "_BOOT_S", 0.0)
    site.cloud.consoles = {"i-1": "x" * 99 + "\n" * 5 + "\x1b[31mKernel panic\n - not syncing: no root\n"}
    with pytest.raises(
        Unreachable, match=r"does not answer; its console ends with:\nx{99}\n\[31mKernel panic\n- not sync"
    ):
        await site.rent(NAMES[0])


async def test_key_is_not_replaced_twice_after_a_kill(site: Site) -> None:
    """The server was killed after the machine had taken its key, and before that was written down."""
    await site.rent(NAMES[0])
    made = site.provider._records.read("lab").tries[NAMES[0]]
    site.provider._records.set_tries("lab", {NAMES[0]: replace(made, settled=False, host_key="ssh-ed25519 OLD")})
    site.wire.ran.clear()
    await site.rent(NAMES[0])
    assert all("reload ssh" not in last for _, last in site.wire.ran)
    assert (await site.provider.rented(CLUSTER))[NAMES[0]].host_key == line(KEYS[host_key_name(NAMES[0])])


async def test_all_machines_that_can_not_be_had_are_named_and_the_others_stay(site: Site) -> None:
    for zone in ("a", "b"):
        site.cloud.refusals["big", zone] = NoCapacity("big", zone)
    with pytest.raises(Refused) as refused:
        await site.rent()
    assert refused.value.message.startswith(
        "2 machines could not be rented:\n  lab-1-1: no machine can be had for lab-1-1"
    )
    assert [one.claim.machine for one in site.cloud.living] == ["lab-head"]
    site.cloud.refusals = {}
    await site.rent()
    assert len(site.cloud.living) == 3


class Claims:
    """Stands in for the surveys and claims of machines. `bare`: those without a GPU driver. `did` lists what was done."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.bare: set[str] = set()
        self.silent: dict[str, HeadwayError] = {}
        self.did: list[str] = []
        for name in ("survey_machines", "claim_machine", "store_findings"):
            monkeypatch.setattr(machine_claims, name, getattr(self, name))
        monkeypatch.setattr(gpu_drivers, "install_drivers", self.install_drivers)

    async def survey_machines(self, _: Any, __: Any, new: Sequence[str]) -> Any:
        self.did.append(f"survey {', '.join(new)}")
        machines = await self.site.provider.rented(CLUSTER)
        surveys = {name: None for name in new if name not in self.silent}
        bare = {name: machines[name] for name in self.bare}
        provider = SimpleNamespace(server_id="server")
        return SimpleNamespace(
            surveys=surveys, silent=self.silent, stops=(), machines=machines, provider=provider, without_driver=bare
        )

    async def claim_machine(self, _: Any, __: str, machine: Machine) -> None:
        self.did.append(f"claim {machine.name}")

    async def install_drivers(self, _: Any, __: Any, machines: dict[str, Machine], ___: Any) -> None:
        self.did.append(f"install {', '.join(machines)}")
        self.bare.clear()

    async def store_findings(self, _: Any, seen: Any, names: Sequence[str]) -> None:
        self.did.append(f"store {', '.join(names)}, {len(seen.without_driver)} without a driver")


async def claim(site: Site, *names: str) -> None:
    await rent_and_claim(CLUSTER, site.context, site.report, KEYS, names)


async def test_machines_of_one_job_are_claimed_once_all_of_them_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = Claims(site, monkeypatch)
    await claim(site, *NAMES[1:])
    assert claims.did == [
        "survey lab-1-1, lab-1-2", "claim lab-1-1", "claim lab-1-2", "store lab-1-1, lab-1-2, 0 without a driver"
    ]  # fmt: skip
    assert [len(order.claims) for order, _ in site.cloud.orders.values()] == [2]
    assert [one.name for one in await site.provider.list("lab")] == ["lab-1-1", "lab-1-2"]


async def test_machine_that_does_not_answer_stops_the_claim_of_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(site, monkeypatch)
    claims.silent = {"lab-1-2": Unreachable("it does not answer")}
    with pytest.raises(Unreachable, match="it does not answer"):
        await claim(site, *NAMES[1:])
    assert await site.provider.list("lab") == ()


async def test_gpu_driver_is_installed_before_slurm_counts_gpus(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims(site, monkeypatch)
    claims.bare = {"lab-1-2"}
    await claim(site, *NAMES[1:])
    assert claims.did[-3:] == [
        "install lab-1-2", "survey lab-1-1, lab-1-2", "store lab-1-1, lab-1-2, 0 without a driver"
    ]  # fmt: skip


async def test_leases_are_renewed_on_machines_that_answer(site: Site) -> None:
    await site.rent()
    for name in NAMES:
        await site.provider.create(_request(name))
    site.wire.ran.clear()
    site.wire.dead = {"lab-1-2"}
    assert await renew_leases(CLUSTER, site.context) == ("lab-1-2",)
    assert sorted(site.wire.ran) == [(name, "/var/lib/headway/lease") for name in ("lab-1-1", "lab-head")]


def _request(name: str) -> Any:
    from headway.cluster.machine_request import machine_request

    return machine_request(CLUSTER, KEYS, name, "")


async def test_plan_says_what_is_missing_and_launches_nothing(site: Site) -> None:
    site.cloud.prices = {"big": "3.20", "little": "0.20"}
    planned = await with_rental_notes(CLUSTER, site.context, ChangeSet("lab", ()), NAMES)
    assert [note.partition(":")[0] for note in planned.notes[:2]] == ["lab-head", "lab-1-[1-2]"]
    assert planned.notes[2].startswith("what apply rents costs 6.60 USD an hour")
    assert site.cloud.machines == {}
    await site.rent()
    assert (await with_rental_notes(CLUSTER, site.context, ChangeSet("lab", ()), NAMES)).notes == ()


async def test_plan_says_that_the_cloud_does_not_answer(site: Site) -> None:
    def away(_: str) -> None:
        raise HeadwayError("the region is away", hint="wait")

    site.cloud.before = away
    planned = await with_rental_notes(CLUSTER, site.context, ChangeSet("lab", ()), NAMES)
    assert planned.notes == ("the cloud does not say what can be had: the region is away; wait",)


async def test_plan_says_what_is_rented_when_jobs_wait(site: Site) -> None:
    group = replace(CLUSTER.groups[0], nodes=0, idle_s=600)
    cluster = replace(CLUSTER, groups=(group,))
    planned = await with_rental_notes(cluster, site.context, ChangeSet("lab", ()), ["lab-head"])
    assert planned.notes[-1].startswith(
        "when jobs wait, lab-1-[1-2]: up to 2 x big in a, on-demand, 1.00 USD an hour each"
    )
    await site.rent("lab-head")
    assert (await with_rental_notes(cluster, site.context, ChangeSet("lab", ()), ["lab-head"])).notes == ()
    change = ChangeSet("lab", (Change("file.write", "lab-head", "/etc/slurm/slurm.conf", "differs"),))
    noted = await with_rental_notes(cluster, site.context, change, ["lab-head"])
    assert [note.partition(",")[0] for note in noted.notes] == ["when jobs wait"]
