"""Finds a provider by the name a cluster file uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.domain.cluster import Host
from headway.errors import Refused
from headway.providers.base import Provider

NAMES = ("local", "ssh")


def provider(name: str, state_dir: Path, hosts: Sequence[Host] = ()) -> Provider:
    """The provider of this name. Raises Refused for an unknown one."""
    if name == "local":
        from headway.providers.local.provider import LocalProvider

        return LocalProvider(state_dir)
    if name == "ssh":
        from headway.providers.inventory.provider import SshProvider

        return SshProvider(state_dir, hosts)
    raise Refused(f"there is no provider {name!r}", hint=f"use one of: {', '.join(NAMES)}")
