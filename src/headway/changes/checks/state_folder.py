"""Judges whether the folder for Slurm's state survives the loss of either of two heads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import DetectedMount, Survey
from headway.domain.storage.folders import Volume

# File systems that never come from another machine.
_OWN = frozenset(("tmpfs", "ramfs", "devtmpfs", "proc", "sysfs", "overlay", "squashfs", "rootfs"))
_FIX = "set storage.state to a folder on a file system that both heads mount from another server"


def state_folder_problems(cluster: Cluster, surveys: Mapping[str, Survey]) -> Iterator[HostProblem]:
    """Yields problems of the state folder. Yields nothing if the file names no folder, because the state is then on the one
    head's own disk."""
    state = cluster.storage.state
    if not state:
        return
    heads = [surveys[name] for name in cluster.heads if name in surveys]
    names = _names(cluster, heads)
    volume = _volume(cluster, state)
    for survey in heads:
        there = survey.state
        if volume and (there is None or there.at != volume.path):  # Headway will mount the volume
            yield from _of_a_head(survey, state, names, _words(volume.source))
        elif there is None or there.at == "/" or there.kind in _OWN:
            yield _problem(survey, f"has {state} on its own disk", _FIX)
        else:
            yield from _of_a_head(survey, state, names, _words(there.source) | {there.server})
    yield from _one_place(state, [head for head in heads if head.state and head.state.at != "/"])


def _volume(cluster: Cluster, state: str) -> Volume | None:
    """Returns the cluster's volume that the state folder is on, if any."""
    return next((volume for volume in cluster.storage.volumes if f"{state}/".startswith(f"{volume.path}/")), None)


def _names(cluster: Cluster, heads: list[Survey]) -> dict[str, str]:
    """Returns the head's name in the cluster for each name or address that a head may have as a file server; "" for
    localhost."""
    named = {host.address: host.name for host in cluster.hosts if host.name in cluster.heads}
    for survey in heads:
        called = {survey.machine, survey.address, survey.hostname, *survey.addresses}
        named |= dict.fromkeys(called - {""}, survey.machine)
    return named | dict.fromkeys(("localhost", "127.0.0.1", "::1"), "")


def _words(source: str) -> set[str]:
    """Returns the possible file servers of a mount source: "filer:/export", "[fd00::1]:/export", "mgs@tcp:/fsx",
    "//filer/share" or "user@box:/srv". The rest of the source is a path."""
    before, _, path = source.partition("/")
    if "[" in before:
        return {before.partition("[")[2].partition("]")[0]}
    between = path[1:].partition("/")[0] if path.startswith("/") else ""
    return {word for word in re.split(r"[@:,]+", f"{before},{between}") if word}


def _of_a_head(survey: Survey, state: str, names: Mapping[str, str], servers: set[str]) -> Iterator[HostProblem]:
    """Yields a problem if one of the heads serves the folder."""
    served = next((names[server] or survey.machine for server in sorted(servers) if server in names), "")
    if served:
        yield _problem(survey, f"has {state} from {served}, one of the heads: it is lost with that head", _FIX)


def _one_place(state: str, heads: list[Survey]) -> Iterator[HostProblem]:
    """Yields a problem if the heads do not see the same folder."""
    found: list[DetectedMount] = [head.state for head in heads if head.state]
    if len({mount.kind for mount in found}) > 1:  # one head mounts it, the other has it on its own disk
        kinds = ", ".join(f"{head.state.kind} on {head.machine}" for head in heads if head.state)
        yield HostProblem(f"{state} is not the same kind of file system on both heads: {kinds}", _FIX)
    elif len({mount.mark for mount in found}) > 1:
        where = " and ".join(head.machine for head in heads)
        yield HostProblem(f"{state} is not the same folder on {where}", _FIX)


def _problem(survey: Survey, what: str, fix: str) -> HostProblem:
    return HostProblem(f"{survey.machine} ({survey.address}) {what}", fix)
