"""A copy of Headway for tests of newer node images."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import headway
from headway.images.recipe import REPOSITORY, inputs_hash

_SOURCES = Path(headway.__file__).parents[1]
_SMI = "node/image/rootfs/usr/bin/nvidia-smi"


@dataclass
class Installation:
    """A copy of Headway whose node image can be changed, as a newer version would change it."""

    folder: Path
    image_name: str = "debian13"
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_SOURCES / "headway", self.folder / "src/headway", ignore=skip)
        shutil.copytree(_SOURCES.parent / "node", self.folder / "node", ignore=skip)
        self.smi = (self.folder / _SMI).read_text()

    def image(self, smi: str) -> None:
        """Sets the nvidia-smi of the node image from now on."""
        (self.folder / _SMI).write_text(smi)
        self.tags.append(f"{REPOSITORY}:{self.image_name}-{inputs_hash(self.image_name, self.folder / 'node/image')}")

    def remove_images(self) -> None:
        """Removes the images that were built from this copy."""
        for tag in self.tags:
            subprocess.run(["podman", "rmi", tag], capture_output=True, timeout=120, check=False)
