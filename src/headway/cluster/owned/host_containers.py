"""Machines in system containers: copies the node image to a host that the user owns, starts the machine there, and
removes it again. The work on the host is done by node/programs/owned_machines/container_host.sh."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from headway.cluster.context import ClusterContext
from headway.cluster.keys import secrets
from headway.cluster.machine_request import machine_request
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineRequest
from headway.domain.operation_progress import ReportProgress
from headway.errors import CommandFailed, Refused
from headway.images import archive, local_images, recipe
from headway.paths import node_dir

FOLDER = "/var/lib/headway/machine"
_PROGRAM = f"{FOLDER}/host.sh"
_RUNTIMES = ("podman", "systemd-nspawn")  # as container_host.sh knows them
_NEED_MIB = 3500  # the unpacked node image, and room to work
_START_S = 420.0
_ROOM_S = 600.0  # deletes the former image, which takes minutes on a busy disk
_STOP_S = 240.0
_BOOT_S = 120.0
_REPORT_S = 5.0
_SAVE = 'umask 022; mkdir -p "${1%/*}"; cat >"$1.new"; mv "$1.new" "$1"'
_PORT_CONF = "etc/ssh/sshd_config.d/00-headway-port.conf"


async def bring_up(
    context: ClusterContext,
    host: Machine,
    image: str,
    request: MachineRequest,
    report: ReportProgress,
    *,
    runtime: str,
    folders: Sequence[str] = (),
) -> None:
    """Copies the image with this id to the host unless it is there, and starts the machine from it. A machine that runs
    from this image goes on. `folders`: folders of the host that must exist. Raises HeadwayError naming the host."""
    where = f"host {host.address}"
    if runtime not in _RUNTIMES:
        raise Refused(
            f"{request.name}: {where} does not say what runs its container: {FOLDER}/settings there has no such line",
            hint="add the line runtime=podman or runtime=systemd-nspawn to that file on the host; then repeat this",
        )
    current = await local_images.find_current_image(request.image)
    try:
        await _save_program(context, host)
        if (await _run(context, host, ["image"], timeout_s=30)).strip() != image:
            await _copy_image(context, host, image, request.name, report)
        argv = ["up", image, request.name, runtime, *folders]
        await _run(
            context, host, argv, timeout_s=_START_S, data=_files(request, current is not None and current.id == image)
        )
    except CommandFailed as error:
        raise Refused(
            f"{request.name}: its container does not start on {where}: {_reason(error)}",
            hint="journalctl -u headway-machine on the host shows more; then apply again",
        ) from error


def _reason(error: CommandFailed) -> str:
    """Returns what the command wrote, in one line."""
    return "; ".join(filter(None, map(str.strip, error.stderr.splitlines()))) or error.first_line


async def rebuild_container(
    cluster: Cluster, context: ClusterContext, machine: Machine, host: Machine, tag: str, report: ReportProgress
) -> None:
    """Shuts the machine on this host down and starts it from the image with this tag; an apply has to set it up
    afterwards. The machine runs until the image is on the host. Raises HeadwayError."""
    have = await secrets.ensure_secrets(context.store, cluster, cluster.machine_names)
    name, port = machine.name, machine.port
    request = machine_request(cluster, have, name, machine.address, image_tag=tag, container_port=port)
    image = (await local_images.get_image(tag)).id
    runtime = await read_runtime(context, host)
    await bring_up(context, host, image, request, report, runtime=runtime)
    await context.provider.create(request)
    await context.connections.drop(name)
    await context.connections.wait_ready(machine, timeout_s=_BOOT_S)


async def restart_container(context: ClusterContext, host: Machine) -> None:
    """Restarts the machine in the container of this host."""
    await _run(context, host, ["restart"], timeout_s=_START_S)


async def remove_container(context: ClusterContext, host: Machine, delete: Sequence[str] = ()) -> None:
    """Removes the machine, its image and the mark from the host, and the folders in `delete`."""
    await _save_program(context, host)
    await _run(context, host, ["leave", *delete], timeout_s=_STOP_S)


async def read_runtime(context: ClusterContext, host: Machine) -> str:
    """Returns the program that runs the machine's container, as it was chosen when the machine was taken; "" if the
    host does not know."""
    argv = ["sed", "-n", "s/^runtime=//p", f"{FOLDER}/settings"]
    return (await context.connections.remote(host, argv, timeout_s=30, check=False)).stdout.strip()


async def _copy_image(context: ClusterContext, host: Machine, image: str, name: str, report: ReportProgress) -> None:
    """Sends the image. The host unpacks it under a temporary name, so that a broken copy is never used."""
    began = time.monotonic()
    if image not in {info.id for info in await local_images.list_images()}:
        raise Refused(f"{name}: its node image is no longer on the server", hint="headway roll uses the current one")
    try:
        await _run(context, host, ["room", str(_NEED_MIB)], timeout_s=_ROOM_S)
    except CommandFailed as error:
        raise Refused(
            f"{name}: the node image can't be copied to host {host.address}: {error.stderr.strip() or error.first_line}",
            hint="free disk space there, or mount a larger file system at that folder; then repeat this",
        ) from error
    await report(name, "the node image is being packed for its host")
    path = await archive.ensure_archive(image, context.state_dir)
    argv = ["sh", _PROGRAM, "receive", image]
    errors = b""
    code = ""
    async for kind, data in context.connections.converse(host, argv, _with_progress(path, host, name, report)):
        if kind == "err":
            errors = (errors + data)[-4000:]
        elif kind == "code":
            code = data.decode()
    if code != "0":
        raise CommandFailed(argv, int(code or 1), errors.decode(errors="replace"), where=host.name)
    seconds = time.monotonic() - began
    await report(name, f"the node image is on its host {host.address}", done=True, seconds=seconds)


async def _with_progress(path: Path, host: Machine, name: str, report: ReportProgress) -> AsyncIterator[bytes]:
    total, sent, last = path.stat().st_size, 0, time.monotonic()
    async for piece in archive.read_archive(path):
        yield piece
        sent += len(piece)
        if time.monotonic() - last >= _REPORT_S:
            last = time.monotonic()
            await report(name, f"node image: {sent >> 20} of {total >> 20} MiB copied to {host.address}")


async def _save_program(context: ClusterContext, host: Machine) -> None:
    program = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_bytes()
    await context.connections.remote(host, ["sh", "-c", _SAVE, "sh", _PROGRAM], timeout_s=30, input=program)


async def _run(
    context: ClusterContext, host: Machine, argv: Sequence[str], *, timeout_s: float, data: bytes | None = None
) -> str:
    ran = await context.connections.remote(host, ["sh", _PROGRAM, *argv], timeout_s=timeout_s, input=data)
    return ran.stdout


def _files(request: MachineRequest, is_current: bool) -> bytes:
    """Returns a tar archive of the files that the machine needs before the first sign-in."""
    private, public = request.host_key_private, request.host_key_public.strip() + "\n"
    keys = {"ssh_host_ed25519_key": (private, 0o600), "ssh_host_ed25519_key.pub": (public, 0o644)}
    files: dict[str, tuple[str, int]] = {
        "etc/hostname": (f"{request.name}\n", 0o644),
        _PORT_CONF: (f"Port {request.container_port}\n", 0o644),
        "etc/headway/boot/authorized_keys": (request.authorized_key.strip() + "\n", 0o600),
        **{f"{folder}/{name}": file for folder in ("etc/headway/boot", "etc/ssh") for name, file in keys.items()},
    }
    if is_current:  # the image has Headway's own parts of the present sources
        files["usr/lib/headway/parts-stamp"] = (recipe.own_parts_archive()[1] + "\n", 0o644)
    return _tar(files)


def _tar(files: Mapping[str, tuple[str, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for path, (text, mode) in files.items():
            entry = tarfile.TarInfo(path)
            content = text.encode()
            entry.size, entry.mode, entry.mtime = len(content), mode, int(time.time())
            packed.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
