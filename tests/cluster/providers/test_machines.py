"""Every provider keeps its interface's guarantees on real machines; local machines have further ones.

The machines of provider `ssh` are local machines of a cluster that it does not know: hosts with an address, a key
and the packages, like those of an owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.support.clusters import builders

from headway.catalog.providers import SSH
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.machine import Machine, MachineRequest, MachineState
from headway.domain.storage.folders import Dataset
from headway.errors import Refused, Unreachable
from headway.images.recipe import current_tag
from headway.providers.base import Provider
from headway.providers.local import mounts
from headway.providers.local.provider import LocalProvider
from headway.providers.ssh.provider import SshProvider
from headway.transport.ssh import Connections

pytestmark = pytest.mark.usefixtures("node_image")

NAME = "mt"


def key_pair() -> tuple[str, str]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


def small(name: str = NAME, **others: Any) -> Cluster:
    """Returns a cluster with a head and one node."""
    return builders.cluster(name=name, nodes=1, spares=0, **others)


@dataclass
class Ground:
    """A provider, the cluster to create on it, and what is needed to sign in."""

    provider: Provider
    cluster: Cluster
    ssh: Connections
    bootstrap: str
    host_keys: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def request(self, name: str) -> MachineRequest:
        address = (await self.provider.place(self.cluster)).addresses[name]
        private, public = self.host_keys.setdefault(name, key_pair())
        head = name == self.cluster.head
        return MachineRequest(self.cluster.name, name, address, "debian13", private, public, self.bootstrap, head=head)

    async def make(self, name: str) -> Machine:
        machine = await self.provider.create(await self.request(name))
        await self.ssh.wait_ready(machine, timeout_s=240)
        return machine

    async def out(self, machine: Machine, *argv: str) -> str:
        return (await self.ssh.remote(machine, argv, timeout_s=120)).stdout.strip()

    async def remove(self, *, delete_data: bool = True) -> tuple[str, ...]:
        for machine in await self.provider.list(self.cluster.name):
            await self.provider.delete(machine)
        return await self.provider.release(self.cluster.name, delete_data=delete_data)


@contextlib.asynccontextmanager
async def local_ground(state: Path, name: str = NAME, **others: Any) -> AsyncIterator[Ground]:
    private, public = key_pair()
    made = Ground(LocalProvider(state), small(name, **others), Connections(private), public)
    try:
        yield made
    finally:
        await made.ssh.close()
        await made.remove()


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Ground]:
    async with local_ground(tmp_path / "state") as made:
        yield made


@pytest.fixture(scope="module")
def owned(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, ...]]:
    """Yields two machines that stand in for owned ones."""
    folder = tmp_path_factory.mktemp("owned")
    private, public = key_pair()
    key_file = folder / "key"
    key_file.write_text(private)
    key_file.chmod(0o600)
    state = folder / "owner"

    async def make() -> tuple[Host, ...]:
        async with Connections(private) as ssh:
            owner = Ground(LocalProvider(state), small("own"), ssh, public)
            machines = await asyncio.gather(owner.make("own-head"), owner.make("own-1-1"))
        names = (f"{NAME}-head", f"{NAME}-1-1")
        return tuple(
            Host(name, machine.address, key=str(key_file)) for name, machine in zip(names, machines, strict=True)
        )

    async def remove() -> None:
        async with Connections(private) as ssh:
            await Ground(LocalProvider(state), small("own"), ssh, public).remove()

    try:
        yield asyncio.run(make())
    finally:
        asyncio.run(remove())


@pytest.fixture(params=["local", "ssh"])
def hosts(request: pytest.FixtureRequest) -> tuple[Host, ...]:
    """Returns the owned hosts; () for provider local."""
    return request.getfixturevalue("owned") if request.param == "ssh" else ()


@pytest.fixture
async def ground(hosts: tuple[Host, ...], tmp_path: Path) -> AsyncIterator[Ground]:
    if not hosts:
        async with local_ground(tmp_path / "state") as made:
            yield made
        return
    unused, _ = key_pair()
    async with Connections(unused) as ssh:
        of = Ground(SshProvider(tmp_path / "state", hosts), small(provider=SSH, hosts=hosts), ssh, "")
        yield of
        await of.remove()


# ---- every provider --------------------------------------------------------------------------------------------------


async def test_provider_creates_and_lists_reachable_machines(ground: Ground) -> None:
    place = await ground.provider.place(ground.cluster)
    assert set(place.addresses) == {"mt-head", "mt-1-1"}
    assert await ground.provider.place(ground.cluster) == place
    assert await ground.provider.find(ground.cluster) == place
    assert await ground.provider.list(NAME) == ()

    made = await asyncio.gather(ground.make("mt-head"), ground.make("mt-1-1"))
    assert [machine.address for machine in made] == list(place.addresses.values())
    assert await ground.out(made[1], "echo", "a  b", "$HOME") == "a  b $HOME"
    assert await ground.out(made[1], "id", "-un") == "root"

    listed = {machine.name: machine for machine in await ground.provider.list(NAME)}
    for machine in made:
        found = listed[machine.name]
        assert (found.state, found.address, found.cluster) == (MachineState.RUNNING, machine.address, NAME)
        assert found.host_key.split()[:2] == machine.host_key.split()[:2]

    # Machines reach each other, and the server's address is the one that they receive.
    await ground.out(made[0], "ping", "-c", "1", "-W", "5", made[1].address)
    await ground.out(made[1], "ping", "-c", "1", "-W", "5", place.gateway)


async def test_provider_create_is_idempotent(ground: Ground) -> None:
    first = await ground.make("mt-1-1")
    again = await ground.make("mt-1-1")
    assert (again.address, again.host_key) == (first.address, first.host_key)
    assert await ground.out(again, "echo", "up") == "up"
    assert len(await ground.provider.list(NAME)) == 1


async def test_connections_accept_only_the_pinned_host_key(ground: Ground) -> None:
    machine = await ground.make("mt-1-1")
    _, other = key_pair()
    with pytest.raises(Unreachable, match="another SSH host key"):
        await ground.ssh.remote(replace(machine, host_key=other), ["true"], timeout_s=120)


async def test_provider_stops_and_starts_machines(ground: Ground) -> None:
    machine = await ground.make("mt-1-1")
    await ground.provider.start(machine)
    await ground.provider.stop(machine)
    await ground.provider.start(machine)
    await ground.ssh.wait_ready(machine, timeout_s=240)
    assert await ground.out(machine, "echo", "up") == "up"


async def test_provider_delete_and_release_are_idempotent(ground: Ground) -> None:
    machine = await ground.make("mt-1-1")
    await ground.provider.delete(machine)
    await ground.provider.delete(machine)
    assert await ground.provider.list(NAME) == ()
    await ground.provider.release(NAME, delete_data=False)
    await ground.provider.release(NAME, delete_data=False)


async def test_provider_preflight_finds_no_fatal_gap(ground: Ground) -> None:
    assert [problem for problem in await ground.provider.preflight(ground.cluster) if problem.fatal] == []


# ---- owned machines --------------------------------------------------------------------------------------------------


async def test_reinstalled_owned_machine_is_not_trusted_automatically(tmp_path: Path) -> None:
    async with local_ground(tmp_path / "owner", "own") as owner:
        machine = await owner.make("own-1-1")
        provider = SshProvider(tmp_path / "state", [Host("mt-1-1", machine.address)])
        wanted = MachineRequest(NAME, "mt-1-1", machine.address, "", "", "", "")
        await provider.create(wanted)
        owner.host_keys["own-1-1"] = key_pair()
        await owner.provider.delete(machine)
        await owner.make("own-1-1")
        with pytest.raises(Unreachable, match="another SSH host key"):
            await provider.create(wanted)


async def test_preflight_reports_missing_hosts_in_the_inventory(tmp_path: Path) -> None:
    provider = SshProvider(tmp_path, [Host("mt-head", "127.0.0.1")])
    (problem,) = await provider.preflight(small(provider=SSH))
    assert "mt-1-1" in problem.what
    with pytest.raises(Refused, match="mt-1-1"):
        await provider.place(small(provider=SSH))


# ---- local machines --------------------------------------------------------------------------------------------------


def podman(*argv: str) -> str:
    ran = subprocess.run(["podman", *argv], capture_output=True, text=True, check=True, timeout=300)
    return ran.stdout


def container(of: Ground, machine: str) -> str:
    assert isinstance(of.provider, LocalProvider)
    return f"headway-{of.provider.instance}-{of.cluster.name}-{machine}"


async def test_local_machine_boots_without_failed_units(local: Ground) -> None:
    machine = await local.make("mt-head")
    assert await local.out(machine, "systemctl", "is-system-running", "--wait") == "running"
    assert await local.out(machine, "systemctl", "--failed", "--no-legend") == ""
    assert await local.out(machine, "hostname") == "mt-head"
    manifest = json.loads(await local.out(machine, "cat", "/usr/lib/headway/manifest.json"))
    assert manifest["image"] == "debian13"
    assert f" {manifest['slurm']}." in await local.out(machine, "slurmctld", "-V")
    for unit in ("slurmd", "slurmctld", "slurmdbd", "slurmrestd", "mariadb", "prometheus", "prometheus-alertmanager"):
        ran = await local.ssh.remote(machine, ["systemctl", "is-enabled", unit], timeout_s=120, check=False)
        assert ran.stdout.strip() == "disabled", unit
    leftovers = "ls /etc/ssh/ssh_host_* /etc/munge/munge.key"
    assert (await local.ssh.remote(machine, ["sh", "-c", leftovers], timeout_s=120, check=False)).stdout == ""
    assert (
        await local.ssh.remote(machine, ["nvidia-smi"], timeout_s=120, check=False)
    ).stdout == "No devices were found\n"


async def test_killed_machine_keeps_its_files_and_address_when_restarted(local: Ground) -> None:
    machine = await local.make("mt-1-1")
    await local.out(machine, "sh", "-c", "echo kept > /root/note; echo shared > /srv/headway/scratch/note")
    podman("kill", container(local, "mt-1-1"))
    (listed,) = await local.provider.list(NAME)
    assert listed.state is MachineState.STOPPED
    await local.provider.start(listed)
    await local.ssh.wait_ready(machine, timeout_s=240)
    (again,) = await local.provider.list(NAME)
    assert again == replace(listed, state=MachineState.RUNNING)
    assert (await local.out(machine, "cat", "/root/note", "/srv/headway/scratch/note")).split() == ["kept", "shared"]
    assert machine.address in await local.out(machine, "ip", "-4", "-o", "address")


async def test_half_created_machine_is_replaced(local: Ground) -> None:
    request = await local.request("mt-1-1")
    # Not just any image with Headway's label: the tests of rollouts make and remove theirs meanwhile.
    podman("create", "--name", container(local, "mt-1-1"), "--label", "headway=1", current_tag("debian13"), "true")
    machine = await local.provider.create(request)
    await local.ssh.wait_ready(machine, timeout_s=240)


async def test_datasets_are_attached_to_and_detached_from_running_machines(local: Ground, tmp_path: Path) -> None:
    machine = await local.make("mt-1-1")
    for name in ("tiny", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    tiny = Dataset("tiny", str(tmp_path / "tiny"), "/datasets/tiny")
    writable = Dataset("open", str(tmp_path / "open"), "/datasets/open", read_only=False)
    there = "/srv/headway/datasets"

    await local.provider.attach(NAME, [tiny, writable])
    await local.provider.attach(NAME, [tiny, writable])
    assert await local.provider.attached(NAME) == ("open", "tiny")
    assert await local.out(machine, "cat", f"{there}/tiny/file", f"{there}/open/file") == "tinyopen"
    refused = await local.ssh.remote(machine, ["touch", f"{there}/tiny/new"], timeout_s=120, check=False)
    assert "Read-only file system" in refused.stderr
    await local.out(machine, "touch", f"{there}/open/new")
    assert (tmp_path / "open" / "new").exists()

    later = await local.make("mt-head")  # a machine created later reaches them too
    assert await local.out(later, "cat", f"{there}/tiny/file") == "tiny"

    # From read-only to writable and removed, without a restart.
    await local.provider.attach(NAME, [replace(tiny, read_only=False)])
    assert await local.provider.attached(NAME) == ("tiny",)
    await local.out(machine, "touch", f"{there}/tiny/new")
    assert await local.out(machine, "ls", there) == "tiny"
    await local.provider.attach(NAME, [])
    assert await local.out(machine, "ls", there) == ""
    assert (tmp_path / "tiny" / "file").read_text() == "tiny"


async def test_attach_refuses_links_missing_folders_and_invalid_names(local: Ground, tmp_path: Path) -> None:
    await local.make("mt-1-1")
    good = tmp_path / "good"
    good.mkdir()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "file").touch()
    bad = [
        Dataset("link", str(tmp_path / "link"), "/datasets/link"),
        Dataset("gone", str(tmp_path / "gone"), "/datasets/gone"),
        Dataset("file", str(tmp_path / "file"), "/datasets/file"),
        Dataset("../up", str(good), "/datasets/up"),
    ]
    with pytest.raises(Refused) as caught:
        await local.provider.attach(NAME, [*bad, Dataset("good", str(good), "/datasets/good")])
    for word in ("is a link to /etc", "does not exist", "is not a folder", "not a valid dataset name"):
        assert word in caught.value.message
    assert await local.provider.attached(NAME) == ("good",)


async def test_attach_does_not_follow_links_placed_by_a_machine(local: Ground, tmp_path: Path) -> None:
    machine = await local.make("mt-1-1")
    victim, source = tmp_path / "victim", tmp_path / "source"
    victim.mkdir()
    source.mkdir()
    assert isinstance(local.provider, LocalProvider)
    await local.out(machine, "ln", "-s", str(victim), "/srv/headway/datasets/tiny")
    with pytest.raises(Refused, match=r"datasets/tiny exists and is not a folder"):
        await local.provider.attach(NAME, [Dataset("tiny", str(source), "/datasets/tiny")])
    (victim / "tiny").mkdir()
    swap = f"rm -r /srv/headway/datasets && ln -s {victim} /srv/headway/datasets"
    await local.out(machine, "sh", "-c", swap)
    with pytest.raises(Refused, match=r"shared/datasets is not a folder"):
        await local.provider.attach(NAME, [Dataset("tiny", str(source), "/datasets/tiny")])
    assert [point for point in mounts.read_mounts() if point.startswith(str(victim))] == []


async def test_clusters_and_state_folders_are_isolated(local: Ground, tmp_path: Path) -> None:
    mine = await local.make("mt-1-1")
    async with local_ground(tmp_path / "other") as same_name, local_ground(tmp_path / "state", "mt2") as same_state:
        theirs = await same_name.make("mt-1-1")
        second = await same_state.make("mt2-1-1")
        assert len({mine.address, theirs.address, second.address}) == 3
        subnets = [(await of.provider.place(of.cluster)).subnet for of in (local, same_name, same_state)]
        assert len(set(subnets)) == 3
        for of in (local, same_name, same_state):
            assert len(await of.provider.list(of.cluster.name)) == 1
        await same_name.remove()
        assert [machine.state for machine in await local.provider.list(NAME)] == [MachineState.RUNNING]
    assert await local.out(mine, "echo", "up") == "up"


async def test_data_is_kept_and_found_again_until_deleted(local: Ground, tmp_path: Path) -> None:
    head = await local.make("mt-head")
    await local.out(head, "sh", "-c", "echo 1 > /srv/headway/home/a; echo 2 > /srv/headway-state/b")
    await local.provider.attach(NAME, [Dataset("tiny", "/usr/share", "/datasets/tiny")])
    kept = await local.remove(delete_data=False)
    volumes = tmp_path / "state" / "volumes" / NAME
    assert set(kept) == {str(volumes / "shared" / "home"), str(volumes / "head")}
    assert leftovers(local, tmp_path) == []

    head = await local.make("mt-head")
    assert (await local.out(head, "cat", "/srv/headway/home/a", "/srv/headway-state/b")).split() == ["1", "2"]
    assert await local.remove() == ()
    assert not volumes.exists()
    assert leftovers(local, tmp_path) == []
    assert Path("/usr/share").is_dir()


def leftovers(of: Ground, tmp_path: Path) -> list[str]:
    """Returns the containers, networks and mounts of this test that still exist."""
    assert isinstance(of.provider, LocalProvider)
    label = f"label=headway.instance={of.provider.instance}"
    found = podman("ps", "-aq", "--filter", label).split() + podman("network", "ls", "-q", "--filter", label).split()
    return found + [point for point in mounts.read_mounts() if point.startswith(str(tmp_path))]


async def test_nvidia_smi_lists_only_devices_allowed_by_the_cgroup(local: Ground) -> None:
    """The device cgroup decides, as Slurm sets it for a job."""
    machine = await local.make("mt-1-1")
    await local.out(machine, "sh", "-c", "for n in 0 1 2; do mknod -m 666 /dev/nvidia$n c 195 $n; done")
    assert len((await local.out(machine, "nvidia-smi", "-L")).splitlines()) == 3
    confined = (
        "mkdir /sys/fs/cgroup/devices/t && echo 'c 195:1 rwm' > /sys/fs/cgroup/devices/t/devices.deny"
        " && echo $$ > /sys/fs/cgroup/devices/t/cgroup.procs && exec nvidia-smi --query-gpu=index,uuid --format=csv,noheader"
    )
    if not Path("/sys/fs/cgroup/devices").is_dir():
        pytest.skip("devices are not confined by cgroup v1 on this host; the Slurm tests cover it")
    everything = (await local.out(machine, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")).split()
    shown = (await local.out(machine, "sh", "-c", confined)).splitlines()
    assert shown == [f"0, {everything[0]}", f"1, {everything[2]}"]


async def test_machines_have_separate_cgroup_trees(local: Ground) -> None:
    """In a shared tree two systemds would take each other's services for their own, and `podman exec` would not find
    its folder."""
    first, second = await asyncio.gather(local.make("mt-head"), local.make("mt-1-1"))
    trees = "findmnt -n -l -o TARGET -t cgroup,cgroup2"
    marked = await local.out(first, "sh", "-c", f"for tree in $({trees}); do mkdir $tree/marked && echo $tree; done")
    assert marked
    assert await local.out(second, "sh", "-c", f"find $({trees}) -maxdepth 1 -name marked") == ""
    assert isinstance(local.provider, LocalProvider)
    for name in podman("ps", "-q", "--filter", f"label=headway.instance={local.provider.instance}").split():
        assert podman("exec", name, "echo", "there").strip() == "there"
