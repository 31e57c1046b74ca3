"""Parses the value of --container-mounts. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass

from messages import Failed


@dataclass(frozen=True)
class Mount:
    """One entry of --container-mounts."""

    source: str  # absolute, or "tmpfs"
    target: str  # absolute, in the container
    read_only: bool = False


_FLAGS = {"ro", "rw", "bind", "rbind", "private", "rprivate", "slave", "rslave", "nosuid", "nodev"}


def parse_mounts(text: str) -> list[Mount]:
    """Returns the mounts of SRC[:DST[:FLAGS]],... with FLAGS joined by +. Raises Failed."""
    return [_mount(entry) for entry in text.split(",") if entry] if text else []


def _mount(entry: str) -> Mount:
    form = "write SRC:DST or SRC:DST:ro; separate several by commas"
    source, _, rest = entry.partition(":")
    target, _, flags = rest.partition(":")
    mount_flags = set(flags.split("+")) if flags else set()
    if not source or "\0" in entry:
        raise Failed(f"--container-mounts: {entry!r} can't be read", form)
    if unknown := mount_flags - _FLAGS:
        raise Failed(f"--container-mounts: {entry}: {', '.join(sorted(unknown))} is no flag that is supported", form)
    if {"ro", "rw"} <= mount_flags:
        raise Failed(f"--container-mounts: {entry}: both ro and rw", form)
    inside = os.path.normpath("/" + (target or source)).replace("//", "/")
    if inside in ("/", "/proc"):  # bubblewrap starts the holding process from /proc/self/fd
        raise Failed(f"--container-mounts: {entry}: nothing can be mounted over the container's {inside}", form)
    return Mount(source if source == "tmpfs" else os.path.abspath(source), inside, "ro" in mount_flags)
