"""Machines that are containers of this machine."""

from __future__ import annotations

import time
from pathlib import Path

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


async def test_network_of_a_cluster_is_closed_to_other_clusters(podman_script: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    podman_script.write_text(
        f'#!/bin/sh\necho "$@" >> {said}\n'
        'case "$2" in inspect) echo "no such network" >&2; exit 125 ;; ls) echo "[]" ;; esac\n'
    )
    await LocalProvider(tmp_path / "state").place(builders.cluster())
    (created,) = (line for line in said.read_text().splitlines() if line.startswith("network create"))
    assert "--opt isolate=true " in created
