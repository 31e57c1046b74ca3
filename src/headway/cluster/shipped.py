"""Code of ours that stays on machines: the agent, and the package that trainings import."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from headway.domain.files import File
from headway.paths import node_dir
from headway.render.systemd import AGENT_PROGRAM

_PACKAGES = "/usr/lib/python3/dist-packages"  # where the system's python3 of every Debian looks


@cache
def shipped() -> Mapping[str, File]:
    """{path: File} of every machine. By apply rather than by the image: so machines that somebody else set up have it
    too, and all of a cluster get the same one."""
    node = node_dir()
    files = {AGENT_PROGRAM: File((node / "agent.py").read_text())}
    for path in sorted((node / "train" / "headway_train").glob("*.py")):
        files[f"{_PACKAGES}/headway_train/{path.name}"] = File(path.read_text())
    return MappingProxyType(files)
