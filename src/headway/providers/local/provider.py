"""Local machines: podman system containers that boot systemd from a Headway node image.

podman only creates, lists, starts, stops and deletes them; all work inside goes over SSH, as for any machine. Every
object has a hash of the state folder in its name and labels, so that clusters of different state folders never collide.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.catalog.providers import LOCAL
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem, Machine, MachineRequest, MachineState
from headway.domain.storage.folders import Dataset
from headway.errors import CommandFailed, Conflict, HeadwayError
from headway.images import build, local_images
from headway.images.container_removal import remove_containers
from headway.images.podman import HINT, QUERY_TIMEOUT_S, Podman, async_file_lock, file_lock, host_lock_folder, labels
from headway.paths import instance_label, volumes_dir
from headway.private_files import write_private
from headway.providers.base import Placement, ReclaimNotice
from headway.providers.local import mounts, network, packet_filter
from headway.providers.local.removal_mark import is_marked, marked_machines, removal_mark
from headway.transport.process import run_to_completion

UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")  # exists with cgroup v2
_AT_ONCE = 4  # concurrent `podman run` calls; more would only wait for podman's own locks
# Under jobs that use all CPUs the controller and the database get as much time as four nodes (a node has 1024).
HEAD_CPU_SHARES = "4096"
_HEAD_MIB = 400  # state folder: the first database files and logs of a new cluster
_LEAST_MIB = 32  # for a change to an existing cluster
_NOTICE = "reclaim"  # file next to the boot files of a machine: unix seconds at which it is taken back
_RUNNING = {
    "running": MachineState.RUNNING,
    "paused": MachineState.RUNNING,
    "starting": MachineState.STARTING,
}


class LocalProvider:
    """The provider `local`. Implements providers.base.Provider, providers.base.KeyRotatingProvider,
    providers.base.FaultInjectingProvider and providers.base.ReclaimingProvider.

    `state_dir` is the server's state folder; it contains the machines' data and locks."""

    traits = LOCAL

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir.absolute()
        self.instance = instance_label(self.state_dir)
        self._podman = Podman(self.state_dir)
        self._gate = asyncio.Semaphore(_AT_ONCE)

    # ---- names and folders

    def _owner(self, cluster: str) -> str:
        return f"headway-{self.instance}-{cluster}"

    def _container(self, cluster: str, machine: str) -> str:
        return f"{self._owner(cluster)}-{machine}"

    def _boot(self, cluster: str, machine: str) -> Path:
        return self.state_dir / "machines" / cluster / machine

    def _volumes(self, cluster: str) -> Path:
        return volumes_dir(self.state_dir, cluster)

    def _labels(self, cluster: str) -> Sequence[tuple[str, str]]:
        # headway.owner combines instance and cluster, because podman ORs several label filters of `events`.
        return [
            ("headway", "1"),
            ("headway.instance", self.instance),
            ("headway.cluster", cluster),
            ("headway.owner", self._owner(cluster)),
        ]

    # ---- the Protocol

    async def preflight(self, cluster: Cluster) -> tuple[HostProblem, ...]:
        from headway.providers.local.preflight import disk_space_problems, host_problems

        try:
            there = {machine.name for machine in await self.list(cluster.name)}
        except CommandFailed:  # no working podman: reported below, or by the next command
            there = set()
        missing = len({*cluster.machine_names} - there)
        need_mib, need_disk_mib = (400 + 220 * missing, 1024 + 300 * missing) if missing else (0, _LEAST_MIB)
        head_mib = _HEAD_MIB if cluster.head not in there else _LEAST_MIB
        return (*host_problems(need_mib, need_disk_mib), *disk_space_problems(head_mib, self.state_dir))

    async def place(self, cluster: Cluster) -> Placement:
        # Raises Refused for too many nodes before anything is created
        network.machine_addresses(cluster, ipaddress.IPv4Network("10.64.0.0/24"))
        async with async_file_lock(_network_lock()):
            subnet = await self._subnet(cluster.name) or await self._create_network(cluster.name)
            await packet_filter.isolate(subnet)
        return self._place(cluster, subnet)

    async def _create_network(self, cluster: str) -> ipaddress.IPv4Network:
        known = await self._podman.json("network", "ls", "--format", "json") or []
        owner = self._owner(cluster)
        subnet = network.choose_subnet(owner, [*network.listed_networks(known), *network.routed_networks()])
        argv = [
            *("--driver", "bridge"),
            *("--opt", "isolate=true"),  # no traffic to and from other isolated networks of podman
            "--disable-dns",
            *("--subnet", str(subnet), "--gateway", str(subnet[1])),
        ]
        await self._podman("network", "create", *argv, *labels(self._labels(cluster)), owner)
        return subnet

    async def find(self, cluster: Cluster) -> Placement | None:
        subnet = await self._subnet(cluster.name)
        return self._place(cluster, subnet) if subnet else None

    async def _subnet(self, cluster: str) -> ipaddress.IPv4Network | None:
        argv = ("network", "inspect", self._owner(cluster))
        ran = await self._podman(*argv, check=False, timeout_s=QUERY_TIMEOUT_S)
        if ran.code != 0:
            if "not found" in ran.stderr or "no such network" in ran.stderr:
                return None
            raise CommandFailed(ran.argv, ran.code, ran.stderr, hint=HINT)
        return ipaddress.IPv4Network(json.loads(ran.stdout)[0]["subnets"][0]["subnet"])

    @staticmethod
    def _place(cluster: Cluster, subnet: ipaddress.IPv4Network) -> Placement:
        memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
        tmp_mib = shutil.disk_usage("/var/lib").total // (1 << 20)
        place = network.placement_in(cluster, subnet, cpus=os.cpu_count() or 1, memory_mib=memory_mib, tmp_mib=tmp_mib)
        return replace(place, cgroup_v1=not UNIFIED.exists())

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        machines = [
            self._machine(item)
            for item in await self._ps(cluster)
            if item["State"] != "removing" and not is_marked(self._boot(cluster, item["Labels"]["headway.machine"]))
        ]
        return tuple(sorted(machines, key=lambda m: ipaddress.ip_address(m.address)))

    async def _ps(self, cluster: str) -> Sequence[dict[str, Any]]:
        label = f"label=headway.owner={self._owner(cluster)}"
        found = await self._podman.json("ps", "--all", "--no-trunc", "--filter", label, "--format", "json")
        return [item for item in found or [] if item["Labels"].get("headway.machine")]

    @staticmethod
    def _machine(item: dict[str, Any]) -> Machine:
        label = item["Labels"]
        return Machine(
            name=label["headway.machine"],
            cluster=label["headway.cluster"],
            address=label["headway.address"],
            state=_RUNNING.get(item["State"], MachineState.STOPPED),
            host_key=label["headway.host_key"],
            image=item["ImageID"],
            started_at=float(item.get("StartedAt") or 0),
        )

    async def create(self, request: MachineRequest) -> Machine:
        if request.image_tag:
            info = await local_images.get_image(request.image_tag)
        else:
            info = await build.ensure_image(request.image, state_dir=self.state_dir)
        if is_marked(self._boot(request.cluster, request.name)):
            await self._remove(request.cluster, request.name)
        await asyncio.to_thread(self._folders, request.cluster)
        await asyncio.to_thread(self._write_boot, request)
        argv = await self._run_argv(request, info.tag)
        # If podman is killed while it sets up the network, the address is lost for good. So a stopping server lets it
        # finish.
        async with self._gate:
            try:
                await run_to_completion(self._podman(*argv, timeout_s=120))
            except CommandFailed as error:
                if "already in use" not in error.stderr and "already allocated" not in error.stderr:
                    raise self._explain(request, error) from error
                await self._remove(request.cluster, request.name)
                try:
                    await run_to_completion(self._podman(*argv, timeout_s=120))
                except CommandFailed as again:
                    raise self._explain(request, again) from again
        return Machine(
            name=request.name,
            cluster=request.cluster,
            address=request.address,
            state=MachineState.RUNNING,
            host_key=request.host_key_public.strip(),
            image=info.id,
        )

    async def _run_argv(self, request: MachineRequest, tag: str) -> Sequence[str]:
        own = [
            *self._labels(request.cluster),
            ("headway.machine", request.name),
            ("headway.address", request.address),
            ("headway.host_key", request.host_key_public.strip()),
        ]
        volumes = self._volumes(request.cluster)
        binds = [
            f"{self._boot(request.cluster, request.name)}:/etc/headway/boot:ro",
            f"{volumes / 'shared'}:/srv/headway:rslave",
        ]
        if request.head:  # each head has the whole state, so that a standby can continue
            binds.append(f"{volumes / 'head'}:/srv/headway-state")
        shm_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 21)
        return [
            *("run", "--detach", "--privileged", *systemd_argv(), "--name"),
            self._container(request.cluster, request.name),
            *("--network", self._owner(request.cluster), "--ip", request.address),
            *("--mac-address", network.mac_address(request.address), "--hostname", request.name),
            *("--no-hosts", "--dns", "none", "--log-driver", "none", "--pids-limit", "-1"),
            *("--shm-size", f"{shm_mib}m", "--pull", "never"),
            *(("--cpu-shares", HEAD_CPU_SHARES) if request.head else ()),
            *labels(own),
            *(part for bind in binds for part in ("--volume", bind)),
            *await self._podman.limits(tag),
            tag,
            "/sbin/init",
        ]

    def _explain(self, request: MachineRequest, error: CommandFailed) -> HeadwayError:
        hint = "run `headway doctor`; then `headway apply` again"
        if "no space left" in error.stderr:
            hint = "the disk is full: free space, then apply again"
        # podman was killed while it set up the network; only a new network helps
        elif "already allocated" in error.stderr:
            hint = f"podman lost an address: run `headway down {request.cluster}` (keeps the data), then headway apply"
        return CommandFailed(
            error.argv[:3], error.code, error.stderr, where=f"this host, for {request.name}", hint=hint
        )

    def _folders(self, cluster: str) -> None:
        """Creates the data folders of a cluster and its shared mount. Idempotent, and restores the mount after a reboot
        of the host."""
        volumes = self._volumes(cluster)
        for folder in (volumes / "shared", volumes / "head"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)  # users and daemons of machines need access; the server's umask may forbid it
        volumes.chmod(0o711)
        with file_lock(volumes / ".lock"):
            for name, mode in (("home", 0o755), ("scratch", 0o1777), ("datasets", 0o755), ("environments", 0o755)):
                folder = volumes / "shared" / name
                if not folder.is_dir():
                    folder.mkdir()
                    folder.chmod(mode)
            mounts.make_shared_mount(volumes / "shared")

    async def admit(self, machine: Machine, authorized_keys: str) -> None:
        place = self._boot(machine.cluster, machine.name)
        await asyncio.to_thread(write_private, place / "authorized_keys", _line(authorized_keys))

    def _write_boot(self, request: MachineRequest) -> None:
        folder = self._boot(request.cluster, request.name)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / _NOTICE).unlink(missing_ok=True)  # left by an earlier machine of this name
        for name, text in (
            ("authorized_keys", request.authorized_key),
            ("ssh_host_ed25519_key", request.host_key_private),
            ("ssh_host_ed25519_key.pub", request.host_key_public),
        ):
            write_private(folder / name, _line(text))

    async def start(self, machine: Machine) -> None:
        if is_marked(self._boot(machine.cluster, machine.name)):
            raise Conflict(f"{machine.name} is being removed", hint="try again when its removal has ended")
        await asyncio.to_thread(self._folders, machine.cluster)
        async with async_file_lock(_network_lock()):  # a boot of this host has removed the rules
            await packet_filter.isolate(network.subnet_of(machine.address))
        await self._podman("start", self._container(machine.cluster, machine.name), timeout_s=120)

    async def stop(self, machine: Machine) -> None:
        if await self._stands_still(machine):  # a frozen machine can't shut down; it is killed without running again
            await self.kill(machine)
            return
        await self._podman("stop", "--time", "10", self._container(machine.cluster, machine.name), timeout_s=60)

    async def fence(self, machine: Machine) -> None:
        if any(
            listed.name == machine.name and listed.state is MachineState.RUNNING
            for listed in await self.list(machine.cluster)
        ):
            await self.kill(machine)

    async def kill(self, machine: Machine) -> None:
        name = self._container(machine.cluster, machine.name)
        if await self._stands_still(machine):
            # Every process gets SIGKILL before the machine is thawed, so that none runs again.
            ran = await self._podman("inspect", "--format", "{{.Id}}", name, timeout_s=QUERY_TIMEOUT_S)
            await asyncio.to_thread(_end_all, ran.stdout.strip())
            await self._podman("unpause", name, check=False, timeout_s=60)
        ran = await self._podman("kill", name, check=False, timeout_s=60)
        if ran.code != 0 and await self._runs(machine):
            raise CommandFailed(ran.argv, ran.code, ran.stderr, hint=HINT)

    async def _runs(self, machine: Machine) -> bool:
        name = self._container(machine.cluster, machine.name)
        ran = await self._podman("inspect", "--format", "{{.State.Running}}", name, timeout_s=QUERY_TIMEOUT_S)
        return ran.stdout.strip() == "true"

    async def _stands_still(self, machine: Machine) -> bool:
        name = self._container(machine.cluster, machine.name)
        ran = await self._podman("inspect", "--format", "{{.State.Status}}", name, timeout_s=QUERY_TIMEOUT_S)
        return ran.stdout.strip() == "paused"

    async def freeze(self, machine: Machine) -> None:
        await self._podman("pause", self._container(machine.cluster, machine.name), timeout_s=60)

    async def thaw(self, machine: Machine) -> None:
        ran = await self._podman("unpause", self._container(machine.cluster, machine.name), check=False, timeout_s=60)
        if ran.code != 0 and "not paused" not in ran.stderr:
            raise CommandFailed(ran.argv, ran.code, ran.stderr, hint=HINT)

    async def cut(self, machine: Machine) -> None:
        await self._set_network(machine, up=False)

    async def join(self, machine: Machine) -> None:
        await self._set_network(machine, up=True)

    async def reclaim(self, machine: Machine, at: float) -> None:
        folder = self._boot(machine.cluster, machine.name)
        draft = folder / f".{_NOTICE}"
        draft.write_text(f"{at:.3f}")
        draft.replace(folder / _NOTICE)

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        """Returns the notices. A machine whose time is over is removed first: a local machine has no provider that
        would do so. Removals that a killed server began are finished."""
        for name in marked_machines(self.state_dir / "machines" / cluster):
            with contextlib.suppress(CommandFailed):  # tried again the next time
                await self._remove(cluster, name, boot=True, interrupted=True)
        found = sorted((self.state_dir / "machines" / cluster).glob(f"*/{_NOTICE}"))
        notices = [ReclaimNotice(path.parent.name, float(path.read_text())) for path in found]
        for notice in notices:
            if time.time() >= notice.at:
                await self._remove(cluster, notice.machine, boot=True)
        return tuple(notice for notice in notices if time.time() < notice.at)

    async def _set_network(self, machine: Machine, *, up: bool) -> None:
        name = self._container(machine.cluster, machine.name)
        ran = await self._podman("inspect", "--format", "{{.State.Pid}}", name, timeout_s=QUERY_TIMEOUT_S)
        await asyncio.to_thread(network.set_link, int(ran.stdout), up=up)

    async def delete(self, machine: Machine) -> None:
        await self._remove(machine.cluster, machine.name, boot=True)

    async def _remove(self, cluster: str, machine: str, *, boot: bool = False, interrupted: bool = False) -> None:
        """Removes a machine, with `boot` also its boot files. `interrupted`: only if its removal was begun and nothing
        continues it."""
        folder = self._boot(cluster, machine)
        async with removal_mark(folder, interrupted=interrupted) as mine:
            if mine:
                await self._remove_container(self._container(cluster, machine))
                if boot:
                    shutil.rmtree(folder, ignore_errors=True)

    async def _remove_container(self, name: str) -> None:
        for pause_s in (0.1, 0.3, 1.0):  # resources that a killed podman left busy are free a moment later
            try:
                await remove_containers(self._podman, (name,), timeout_s=120)
                return
            except CommandFailed:
                await asyncio.sleep(pause_s)
        await remove_containers(self._podman, (name,), timeout_s=120)

    def inspection_hint(self, machine: Machine) -> str:
        return f"podman exec {self._container(machine.cluster, machine.name)} journalctl -b shows its boot log"

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        def work() -> None:
            self._folders(cluster)
            with file_lock(self._volumes(cluster) / ".lock"):
                mounts.attach_datasets(self._volumes(cluster) / "shared", datasets)

        await asyncio.to_thread(work)

    async def attached(self, cluster: str) -> tuple[str, ...]:
        return mounts.attached_datasets(self._volumes(cluster) / "shared")

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:
        async with contextlib.AsyncExitStack() as marks:
            left = [
                item["Id"]
                for item in sorted(await self._ps(cluster), key=lambda item: str(item["Labels"]["headway.machine"]))
                if await marks.enter_async_context(removal_mark(self._boot(cluster, item["Labels"]["headway.machine"])))
            ]
            if left:
                await remove_containers(self._podman, left, timeout_s=300)
        async with async_file_lock(_network_lock()):
            subnet = await self._subnet(cluster)
            ran = await self._podman("network", "rm", "--force", self._owner(cluster), check=False)
            if ran.code != 0 and "not found" not in ran.stderr:
                raise CommandFailed(ran.argv, ran.code, ran.stderr, hint=HINT)
            if subnet is not None:
                await packet_filter.forget(subnet)
        volumes = self._volumes(cluster)
        await asyncio.to_thread(mounts.remove_shared_mount, volumes / "shared")
        shutil.rmtree(self._boot(cluster, "").parent / cluster, ignore_errors=True)
        if delete_data:
            await asyncio.to_thread(self._delete_data, volumes)
        return tuple(str(folder) for folder in _data(volumes))

    @staticmethod
    def _delete_data(volumes: Path) -> None:
        inside = [point for point in mounts.read_mounts() if point.startswith(f"{volumes}/")]
        if inside:  # never deletes through a mount, because a dataset's own files are behind it
            raise HeadwayError(f"{inside[0]} is still mounted, so nothing was deleted", hint="unmount it, then repeat")
        shutil.rmtree(volumes, ignore_errors=False) if volumes.is_dir() else None


def _network_lock() -> Path:
    return host_lock_folder() / "headway-network.lock"


def _line(text: str) -> str:
    return text.rstrip("\n") + "\n"


def systemd_argv() -> list[str]:
    """Returns the options of `podman run` for a machine whose systemd has its own cgroup tree. In the host's tree,
    slurmd could not tell which job a process belongs to, and the systemds of all machines would share one tree."""
    own = ["--cgroupns", "private"]
    if UNIFIED.exists():
        return [*own, "--systemd=always"]
    # With cgroup v1, --systemd=always would mount the host's systemd tree, so the other settings of that option are
    # listed here.
    folders = ("/run:mode=755", "/run/lock:mode=1777", "/tmp:mode=1777")
    return [
        *own,
        *("--systemd=false", "--stop-signal", "SIGRTMIN+3"),
        *(part for folder in folders for part in ("--tmpfs", f"{folder},rw,exec,nosuid,nodev")),
    ]


def _end_all(container: str, proc: Path = Path("/proc")) -> None:
    """Sends SIGKILL to every process in the container's cgroups."""
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if container in (entry / "cgroup").read_text():
                    os.kill(int(entry.name), signal.SIGKILL)


def _data(volumes: Path) -> list[Path]:
    """Returns the folders with data that should be reported when it is kept."""
    candidates = [volumes / "shared" / "home", volumes / "shared" / "scratch", volumes / "head"]
    return [folder for folder in candidates if folder.is_dir() and any(folder.iterdir())]
