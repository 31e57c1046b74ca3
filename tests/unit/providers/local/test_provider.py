"""Machines that are containers of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.machines.machine import MachineRequest
from headway.errors import Conflict
from headway.images import local_images
from headway.providers.local.provider import LocalProvider
from tests.support.clusters import builders
from tests.support.machines.podman_script import podman_script

__all__ = ["podman_script"]  # a fixture


async def test_reclaimed_machine_is_removed_at_its_deadline(podman_script: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    podman_script.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    provider = LocalProvider(tmp_path / "state")
    for name in ("lab-1-1", "lab-1-2"):
        (provider.state_dir / "machines" / "lab" / name).mkdir(parents=True)
    assert await provider.notices("lab") == ()
    now = time.time()
    await provider.reclaim(builders.machine("lab-1-1"), now - 1)
    await provider.reclaim(builders.machine("lab-1-2"), now + 1000)
    (left,) = await provider.notices("lab")
    assert (left.machine, round(left.at - now)) == ("lab-1-2", 1000)
    (removed,) = (line for line in said.read_text().splitlines() if line.startswith("rm"))
    assert removed.endswith("-lab-lab-1-1")
    await provider.delete(
        builders.machine("lab-1-2")
    )  # its notice is of that machine, not of the next one of this name
    assert await provider.notices("lab") == ()


# podman with the networks that are files in the folder "networks", and iptables with the rules that are lines of "rules".
NETWORKS_OF_PODMAN = """\
#!{python}
import json, pathlib, sys
folder, (what, *words) = pathlib.Path("{folder}"), sys.argv[1:]
network = folder / "networks" / words[-1]
if (what, words[0]) == ("network", "inspect"):
    if not network.exists():
        sys.exit("no such network")
    print(json.dumps([json.loads(network.read_text())]))
elif (what, words[0]) == ("network", "ls"):
    print(json.dumps([json.loads(file.read_text()) for file in network.parent.iterdir()]))
elif (what, words[0]) == ("network", "create"):
    assert words[words.index("--opt") + 1] == "isolate=true"
    network.write_text(json.dumps({{"subnets": [{{"subnet": words[words.index("--subnet") + 1]}}]}}))
elif (what, words[0]) == ("network", "rm"):
    network.unlink()
elif what == "ps":
    print("[]")
else:
    assert what == "start"
"""
IPTABLES = """\
#!/bin/sh
[ "$1 $2 $3" = "-w -t mangle" ] || exit 1
shift 3
what=$1; shift
case $what in
  -S) cat {rules} ;;
  -A|-N) echo "$what $*" >> {rules} ;;
  -D) grep -vxF -e "-A $*" {rules} > {rules}.new; mv {rules}.new {rules} ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def rules(podman_script: Path, tmp_path: Path) -> Path:
    """Contains the rules of an iptables, for a podman that has networks."""
    (tmp_path / "networks").mkdir()
    rules = tmp_path / "rules"
    rules.touch()
    podman_script.write_text(NETWORKS_OF_PODMAN.format(python=sys.executable, folder=tmp_path))
    program = podman_script.with_name("iptables")
    program.write_text(IPTABLES.format(rules=rules))
    program.chmod(0o755)
    return rules


async def test_network_of_a_cluster_is_closed_to_other_clusters(rules: Path, tmp_path: Path) -> None:
    provider = LocalProvider(tmp_path / "state")
    lab = (await provider.place(builders.cluster(name="lab"))).subnet
    other = (await provider.place(builders.cluster(name="other"))).subnet
    assert lab != other
    expected = [
        "-N HEADWAY_FROM_CLUSTERS",
        "-N HEADWAY_TO_CLUSTERS",
        f"-A HEADWAY_TO_CLUSTERS -d {lab} -j DROP",
        f"-A HEADWAY_FROM_CLUSTERS -s {lab} ! -d {lab} -j HEADWAY_TO_CLUSTERS",
        "-A FORWARD -j HEADWAY_FROM_CLUSTERS",
        f"-A HEADWAY_TO_CLUSTERS -d {other} -j DROP",
        f"-A HEADWAY_FROM_CLUSTERS -s {other} ! -d {other} -j HEADWAY_TO_CLUSTERS",
    ]
    assert rules.read_text().splitlines() == expected
    await provider.place(builders.cluster(name="lab"))
    assert rules.read_text().splitlines() == expected
    await provider.release("other", delete_data=False)
    assert rules.read_text().splitlines() == expected[:5]


async def test_start_of_a_machine_closes_its_network_again_after_a_boot_of_the_host(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = LocalProvider(tmp_path / "state")
    monkeypatch.setattr(provider, "_folders", lambda _: None)  # makes a mount, which needs root
    place = await provider.place(builders.cluster())
    before = rules.read_text()
    rules.write_text("")
    await provider.start(replace(builders.machine("lab-1-1"), address=place.addresses["lab-1-1"]))
    assert rules.read_text() == before


class Removal:
    """A podman with one stopped container, the node lab-1-1, whose `rm` waits until the test goes on."""

    def __init__(self, script: Path, folder: Path) -> None:
        self.provider = LocalProvider(folder / "state")
        self._said, self._reached, self._go_on = folder / "said", folder / "reached", folder / "go_on"
        for fifo in (self._reached, self._go_on):
            os.mkfifo(fifo)
        names = ("machine", "cluster", "address", "host_key")
        labels = dict(zip((f"headway.{name}" for name in names), ("lab-1-1", "lab", "10.64.0.2", "k"), strict=True))
        item = {"Id": "12ab", "ImageID": "34cd", "State": "exited", "StartedAt": 1, "Labels": labels}
        script.write_text(
            f"""#!/bin/sh
echo "$1" >> {self._said}
case "$1" in
  ps) echo '{json.dumps([item])}' ;;
  rm) echo x > {self._reached}; read line < {self._go_on} ;;
  network) echo "network not found" >&2; exit 125 ;;
esac
"""
        )

    async def reached(self) -> None:
        """Waits until podman removes the container."""
        await asyncio.wait_for(asyncio.to_thread(self._reached.read_text), 30)

    async def go_on(self) -> None:
        """Lets podman end the removal."""
        await asyncio.wait_for(asyncio.to_thread(self._go_on.write_text, "x\n"), 30)

    def said(self, verb: str) -> int:
        return self._said.read_text().split().count(verb)


@pytest.fixture
def removal(podman_script: Path, tmp_path: Path) -> Removal:
    return Removal(podman_script, tmp_path)


async def test_machine_is_not_listed_or_started_while_its_files_are_deleted(removal: Removal) -> None:
    machine, other = builders.machine("lab-1-1"), LocalProvider(removal.provider.state_dir)
    assert [listed.name for listed in await other.list("lab")] == ["lab-1-1"]
    deleted = asyncio.create_task(removal.provider.delete(machine))
    await removal.reached()
    assert await removal.provider.list("lab") == await other.list("lab") == ()
    with pytest.raises(Conflict, match="lab-1-1 is being removed"):
        await other.start(machine)
    assert removal.said("start") == 0
    assert await other.notices("lab") == (), "the removal goes on and is not done twice"
    again = asyncio.create_task(other.delete(machine))
    await removal.go_on()
    await asyncio.gather(deleted, again)
    assert removal.said("rm") == 1
    assert [listed.name for listed in await other.list("lab")] == ["lab-1-1"], (
        "a later container of this name is listed"
    )


async def test_interrupted_removal_is_finished_by_the_next_server(removal: Removal) -> None:
    deleted = asyncio.create_task(removal.provider.delete(builders.machine("lab-1-1")))
    await removal.reached()
    deleted.cancel()
    await asyncio.gather(deleted, return_exceptions=True)
    after = LocalProvider(removal.provider.state_dir)
    assert await after.list("lab") == ()
    finished = asyncio.create_task(after.notices("lab"))
    await removal.reached()
    await removal.go_on()
    assert await finished == ()
    assert removal.said("rm") == 2
    assert not (after.state_dir / "machines/lab/lab-1-1").exists()


async def test_new_machine_waits_for_the_removal_of_the_one_before(
    removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = removal.provider
    image = local_images.ImageInfo("debian13", "x", "34cd", "", 0, "", "24.11")

    async def get_image(_: str) -> local_images.ImageInfo:
        return image

    monkeypatch.setattr(local_images, "get_image", get_image)
    monkeypatch.setattr(provider, "_folders", lambda _: None)

    async def run_argv(*_: Any) -> list[str]:
        return ["run"]

    monkeypatch.setattr(provider, "_run_argv", run_argv)
    deleted = asyncio.create_task(provider.delete(builders.machine("lab-1-1")))
    await removal.reached()
    request = MachineRequest("lab", "lab-1-1", "10.64.0.2", "debian13", "private", "public", "key", image_tag="x")
    made = asyncio.create_task(provider.create(request))
    await removal.go_on()
    await asyncio.gather(deleted, made)
    assert (removal.said("rm"), removal.said("run")) == (1, 1)
    assert (provider.state_dir / "machines/lab/lab-1-1/authorized_keys").exists()
    assert [listed.name for listed in await provider.list("lab")] == ["lab-1-1"]


async def test_clusters_machines_are_marked_while_it_is_taken_down(removal: Removal) -> None:
    provider = removal.provider
    released = asyncio.create_task(provider.release("lab", delete_data=False))
    await removal.reached()
    assert await LocalProvider(provider.state_dir).list("lab") == ()
    await removal.go_on()
    await released
