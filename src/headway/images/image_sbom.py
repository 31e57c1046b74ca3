"""The bill of materials of a node image: Debian's packages, and what Headway adds to them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headway
from headway.errors import NotFound
from headway.images.cyclonedx import Component, bom_text, package_url
from headway.images.local_images import ImageInfo, find_current_image
from headway.images.recipe import get_recipe
from headway.transport.process import run_process

_OWN = "usr/lib/headway"
_UNPACKED = "usr/lib/python3/dist-packages/jupyterlab-*.dist-info"  # not installed as a package: after_packages.sh
_LEFT_OUT = ("manifest.json", "packages", "debian-releases")  # of _OWN: lists about the image
_SOURCE = re.compile(r"(\S+)(?: \((\S+)\))?")


async def image_sbom(name: str) -> str:
    """Returns the bill of materials of the current image of this name, as JSON in CycloneDX 1.6. Raises NotFound."""
    get_recipe(name)
    info = await find_current_image(name)
    if info is None:
        raise NotFound(f"there is no current node image {name} here", hint=f"headway image build {name}")
    root = Path((await run_process(["podman", "image", "mount", info.tag], timeout_s=60)).stdout.strip())
    try:
        return await asyncio.to_thread(sbom_of_root, root, info)
    finally:
        await run_process(["podman", "image", "umount", info.tag], timeout_s=60, check=False)


def sbom_of_root(root: Path, info: ImageInfo) -> str:
    """Returns the bill of materials of an image whose root folder is `root`."""
    manifest = json.loads((root / _OWN / "manifest.json").read_text())
    properties = {"headway:image-id": info.id, "debian:suite": manifest["suite"], "slurm:version": manifest["slurm"]}
    for release in info.debian:  # there is no base image: these are what the packages come from
        properties[f"debian:{release.suite}:inrelease-sha256"] = release.sha256
        properties[f"debian:{release.suite}:date"] = release.date
    subject = Component(
        "container", info.tag.rpartition(":")[0], info.tag.rpartition(":")[2], properties=properties
    )  # fmt: skip
    found = [*debian_packages(root), *_unpacked(root), *_own_files(root)]
    return bom_text(subject, found, tool_version=headway.__version__, timestamp=manifest["built"])


def debian_packages(root: Path) -> Iterator[Component]:
    """Yields the installed packages of the dpkg database below `root`, with their source packages."""
    release = dict(
        line.split("=", 1) for line in (root / "usr/lib/os-release").read_text().splitlines() if "=" in line
    )  # fmt: skip
    # A suite in testing has no number.
    distro = f"debian-{(release.get('VERSION_ID') or release.get('VERSION_CODENAME', '')).strip(chr(34))}"
    for fields in _stanzas((root / "var/lib/dpkg/status").read_text(errors="replace")):
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        source = _SOURCE.match(fields.get("Source", name))
        assert source is not None
        where = {"arch": fields["Architecture"], "distro": distro}
        properties = {"debian:source": source[1], "debian:source-version": source[2] or version}
        yield Component(
            "library", name, version, package_url("deb", f"debian/{name}", version, where), properties=properties
        )


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    for stanza in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[:1] not in " \t")
        if "Package" in fields:
            yield fields


def _unpacked(root: Path) -> Iterator[Component]:
    for folder in sorted(root.glob(_UNPACKED)):
        text = (folder / "METADATA").read_text(errors="replace")
        found: dict[str, Any] = dict(re.findall(r"^(Name|Version): (\S+)$", text, flags=re.MULTILINE))
        name, version = found["Name"].lower(), found["Version"]
        yield Component("library", name, version, package_url("pypi", name, version))


def _own_files(root: Path) -> Iterator[Component]:
    """Yields Headway's own programs and the plugins that the build compiled."""
    for path in sorted((root / _OWN).rglob("*")):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts and path.name not in _LEFT_OUT:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            properties = {"headway:version": headway.__version__}
            yield Component("file", f"/{path.relative_to(root)}", hashes=(("SHA-256", digest),), properties=properties)
