"""Headway's own code that is installed on machines: the agent, and the package that training scripts import."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from headway.domain.machines.managed_file import File
from headway.paths import node_dir
from headway.render.machine_paths import AGENT_PROGRAM, PYTHON_PACKAGES

_START = "from agent.__main__ import main\n\nmain()\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date of the zip format


@cache
def bundled_files() -> Mapping[str, File]:
    """Returns {path: File} for every machine. Apply installs these files instead of the image, so that owned machines
    have them too. Raises FileNotFoundError for an installation without node/."""
    node = node_dir()
    files = {AGENT_PROGRAM: File("", data=agent_zip(node))}
    train = node / "train"
    for path in sorted((train / "headway_train").rglob("*.py")):
        files[f"{PYTHON_PACKAGES}/{path.relative_to(train)}"] = File(path.read_text())
    return MappingProxyType(files)


def agent_zip(node: Path) -> bytes:
    """Returns a zip file that Python can run, with the package `agent` of folder `node`. The same sources always give
    the same bytes, so that apply finds no change. Raises FileNotFoundError if there is no agent."""
    modules = sorted((node / "agent").rglob("*.py"))
    texts = {str(path.relative_to(node)): path.read_text() for path in modules}
    if not texts:
        raise FileNotFoundError("node/agent is missing from this installation")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, text in {"__main__.py": _START, **texts}.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return packed.getvalue()
