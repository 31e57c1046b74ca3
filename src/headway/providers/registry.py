"""The code of each provider, by the name that cluster files use. `catalog.providers` has their capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headway.catalog.providers import LOCAL, SSH
from headway.domain.cluster import Host
from headway.errors import Refused
from headway.providers.base import Provider
from headway.providers.local.provider import LocalProvider
from headway.providers.ssh.provider import SshProvider

_OPEN: Mapping[str, Callable[[Path, Sequence[Host]], Provider]] = {
    LOCAL.name: lambda state_dir, _hosts: LocalProvider(state_dir),
    SSH.name: SshProvider,
}


def open_provider(name: str, state_dir: Path, hosts: Sequence[Host] = ()) -> Provider:
    """Returns the provider of this name. Raises Refused for an unknown one."""
    if name not in _OPEN:
        raise Refused(f"there is no provider {name!r}", hint=f"use one of: {', '.join(_OPEN)}")
    return _OPEN[name](state_dir, hosts)
