"""Removes containers so that other podman commands go on. `podman rm` deletes a container's files under a lock that most other
commands wait for: for some gigabytes on a busy host longer than a minute. So the files are deleted before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headway.images.podman import Podman
from headway.transport.process import run_process

_STORED = "{{.GraphDriver.Data.UpperDir}}"  # folder with what the container has changed of its image


async def remove_containers(podman: Podman, names: Sequence[str], *, timeout_s: float) -> None:
    """Ends these containers at once and removes them with their volumes. Those that are gone are ignored. `timeout_s`: for each
    step. Raises CommandFailed if podman can't remove one."""
    await podman("stop", "--ignore", "--time", "0", *names, check=False, timeout_s=timeout_s)
    stored = await podman("container", "inspect", "--format", _STORED, *names, check=False, timeout_s=timeout_s)
    folders = [line for line in stored.stdout.splitlines() if line.startswith("/") and line.endswith("/diff")]
    # What is left after an error or the time limit is deleted by podman.
    argvs = [["find", folder, "-xdev", "-mindepth", "1", "-delete"] for folder in folders]
    await asyncio.gather(
        *(run_process(argv, timeout_s=timeout_s, check=False) for argv in argvs), return_exceptions=True
    )
    await podman("rm", "--force", "--ignore", "--time", "0", "--volumes", *names, timeout_s=timeout_s)
