"""A host gets the node image once, and its machine's keys before the first start; secrets are in no command."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.cluster.context import ClusterContext
from headway.cluster.keys.secrets import new_key
from headway.cluster.machine_request import machine_request
from headway.cluster.owned import host_containers
from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed, Refused
from headway.images import archive, local_images
from headway.transport.process import CommandResult
from tests.support.clusters import builders

LAB = builders.cluster(2, 0, provider=SSH)
HOST = replace(builders.machine("lab-1-1"), user="ops")
PRIVATE = new_key()
SECRETS = {"host_key/lab-1-1": PRIVATE, "bootstrap_key": PRIVATE}


class Host:
    """A host with an image, or without one; it answers only what container_host.sh can do."""

    def __init__(self, image: str = "") -> None:
        self.image = image
        self.did: list[tuple[str, ...]] = []
        self.files = b""
        self.limits_s: dict[str, float] = {}
        self.code = 0
        self.fault, self.says = "", "podman: no such runtime"

    async def remote(self, machine: Machine, argv: Sequence[str], **options: Any) -> CommandResult:
        assert machine == HOST
        if argv[:2] != ["sh", f"{host_containers.FOLDER}/host.sh"]:
            assert argv[:2] == ["sh", "-c"], argv
            return CommandResult(tuple(argv), 0, "", "", 0.0)
        self.did.append(tuple(argv[2:]))
        self.limits_s[argv[2]] = options["timeout_s"]
        if argv[2] == self.fault:
            raise CommandFailed(argv, 1, self.says, where=machine.name)
        if argv[2] == "up":
            self.files = options["input"]
        return CommandResult(tuple(argv), 0, f"{self.image}\n", "", 0.0)

    async def converse(
        self, machine: Machine, argv: Sequence[str], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        assert machine == HOST
        self.did.append(tuple(argv[2:]))
        assert b"".join([piece async for piece in feed]) == b"packed"
        yield "err", b"gzip: unexpected end of file" if self.code else b""
        yield "code", b"%d" % self.code


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    info: Any = SimpleNamespace(id="image-2", tag="node:2")

    async def list_images() -> tuple[Any, ...]:
        return (info,)

    async def current(_: str) -> Any:
        return info

    async def packed(_: str, folder: Path) -> Path:
        path = folder / "image.tar.gz"
        path.write_bytes(b"packed")
        return path

    monkeypatch.setattr(local_images, "list_images", list_images)
    monkeypatch.setattr(local_images, "find_current_image", current)
    monkeypatch.setattr(archive, "ensure_archive", packed)
    return str(info.id)


async def bring_up(host: Host, image: str, folder: Path, *, runtime: str = "podman") -> None:
    context: Any = ClusterContext(None, None, host, folder)  # type: ignore[arg-type]
    request = machine_request(LAB, SECRETS, "lab-1-1", "10.9.0.11", container_port=2222)

    async def report(*_: Any, **__: Any) -> None: ...

    folders = ("/home", "/scratch")
    await host_containers.bring_up(context, HOST, image, request, report, runtime=runtime, folders=folders)


async def test_image_is_copied_once(tmp_path: Path, image: str) -> None:
    new, has_it = Host("image-1"), Host(image)
    await bring_up(new, image, tmp_path)
    up = ("up", image, "lab-1-1", "podman", "/home", "/scratch")
    assert new.did == [("image",), ("room", "3500"), ("receive", image), up]
    assert new.limits_s["room"] >= 600, "it deletes the former image, which takes minutes on a busy disk"
    await bring_up(has_it, image, tmp_path)
    assert has_it.did == [("image",), up]


async def test_machine_gets_port_and_keys_by_standard_input(tmp_path: Path, image: str) -> None:
    host = Host(image)
    await bring_up(host, image, tmp_path)
    with tarfile.open(fileobj=io.BytesIO(host.files)) as packed:
        files = {entry.name: (entry.mode, packed.extractfile(entry).read().decode()) for entry in packed}  # type: ignore[union-attr]
    assert files["etc/ssh/sshd_config.d/00-headway-port.conf"][1] == "Port 2222\n"
    assert files["etc/headway/boot/ssh_host_ed25519_key"] == (0o600, PRIVATE)
    assert files["etc/headway/boot/authorized_keys"][1].startswith("ssh-ed25519 ")
    assert PRIVATE not in str(host.did)


async def test_broken_copy_and_failed_start_name_the_host(tmp_path: Path, image: str) -> None:
    cut, broken = Host(), Host(image)
    cut.code, broken.fault = 1, "up"
    with pytest.raises(Refused, match=f"container does not start on host {HOST.address}: .*unexpected end of file"):
        await bring_up(cut, image, tmp_path)
    assert cut.did[-1][0] == "receive", "nothing is started"
    with pytest.raises(Refused, match="no such runtime") as caught:
        await bring_up(broken, image, tmp_path)
    assert "journalctl -u headway-machine" in caught.value.hint


async def test_missing_space_on_the_host_says_where_and_what_to_do(tmp_path: Path, image: str) -> None:
    full = Host()
    full.fault, full.says = "room", "/var/lib/headway/machine has 12 MiB of free disk space"
    with pytest.raises(Refused, match=f"copied to host {HOST.address}: /var/lib/headway/machine has 12 MiB") as caught:
        await bring_up(full, image, tmp_path)
    assert caught.value.hint.startswith("free disk space there")
    assert full.did[-1][0] == "room", "nothing is copied"


@pytest.mark.parametrize("runtime", ["", "docker"])
async def test_host_that_does_not_say_how_its_container_runs_is_refused(
    tmp_path: Path, image: str, runtime: str
) -> None:
    host = Host(image)
    with pytest.raises(Refused, match=f"host {HOST.address} does not say what runs its container") as caught:
        await bring_up(host, image, tmp_path, runtime=runtime)
    assert "runtime=podman or runtime=systemd-nspawn" in caught.value.hint
    assert host.did == []


async def test_image_that_left_the_server_is_told(tmp_path: Path, image: str) -> None:
    assert image
    with pytest.raises(Refused, match="its node image is no longer on the server"):
        await bring_up(Host(), "image-0", tmp_path)
