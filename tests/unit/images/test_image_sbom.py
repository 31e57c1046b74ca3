"""The bill of materials of an image: Debian's packages with their sources, and what Headway adds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.images.cyclonedx import Component, bom_text, package_url
from headway.images.image_sbom import sbom_of_root
from headway.images.local_images import DebianRelease, ImageInfo
from tests.support.cyclonedx_schema import schema_errors

DEBIAN = (DebianRelease("trixie", "a" * 64, "2026-11-26T08:00:00Z"),)
INFO = ImageInfo("debian13", "localhost/headway-node:debian13-abc", "f00d", "abc", 1800, "", "24.11", debian=DEBIAN)
STATUS = """\
Package: automake
Status: install ok installed
Architecture: all
Source: automake-1.17 (1:1.17-3)
Version: 1:1.17-4+b1
Description: A tool
 Package: not-a-field

Package: slurmd
Status: hold ok installed
Architecture: amd64
Source: slurm-wlm
Version: 24.11.5-4

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a node image that its bill of materials is made from."""
    for name, text in {
        "usr/lib/os-release": 'NAME="Debian"\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n',
        "var/lib/dpkg/status": STATUS,
        "usr/lib/headway/manifest.json": json.dumps(
            {"suite": "trixie", "slurm": "24.11", "built": "2026-11-26T18:22:31+00:00"}
        ),
        "usr/lib/headway/packages": "automake 1",
        "usr/lib/headway/spank/container.so": "plugin",
        "usr/lib/headway/container/__pycache__/x.pyc": "compiled",
        "usr/lib/python3/dist-packages/jupyterlab-4.3.0.dist-info/METADATA": "Name: jupyterlab\nVersion: 4.3.0\n\nX",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def made(root: Path) -> dict[str, Any]:
    return dict(json.loads(sbom_of_root(root, INFO)))


def test_installed_packages_have_package_urls_and_source_packages(root: Path) -> None:
    rows = {one["name"]: one for one in made(root)["components"]}
    assert "gone" not in rows
    assert rows["automake"]["purl"] == "pkg:deb/debian/automake@1:1.17-4%2Bb1?arch=all&distro=debian-13"
    sources = {name: {row["name"]: row["value"] for row in rows[name]["properties"]} for name in ("automake", "slurmd")}
    assert sources["automake"] == {"debian:source": "automake-1.17", "debian:source-version": "1:1.17-3"}
    assert sources["slurmd"] == {"debian:source": "slurm-wlm", "debian:source-version": "24.11.5-4"}


def test_own_and_unpacked_parts_are_listed_but_no_compiled_copies(root: Path) -> None:
    document = made(root)
    rows = {one["name"]: one for one in document["components"]}
    assert set(rows) == {"automake", "slurmd", "jupyterlab", "/usr/lib/headway/spank/container.so"}
    digest = hashlib.sha256(b"plugin").hexdigest()
    assert rows["/usr/lib/headway/spank/container.so"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert rows["jupyterlab"]["purl"] == "pkg:pypi/jupyterlab@4.3.0"
    assert document["metadata"]["component"]["version"] == "debian13-abc"
    facts = {row["name"]: row["value"] for row in document["metadata"]["component"]["properties"]}
    assert facts["debian:trixie:inrelease-sha256"] == "a" * 64
    assert facts["debian:trixie:date"] == "2026-11-26T08:00:00Z"
    assert document["metadata"]["tools"]["components"][0]["version"] == headway.__version__


def test_same_image_gives_the_same_bytes_and_a_change_another_serial_number(root: Path) -> None:
    first = sbom_of_root(root, INFO)
    assert sbom_of_root(root, INFO) == first
    (root / "usr/lib/headway/spank/container.so").write_text("changed")
    assert made(root)["serialNumber"] != json.loads(first)["serialNumber"]


def test_image_sbom_fits_the_schema(root: Path) -> None:
    document = made(root)
    assert schema_errors(document) == []
    document["components"][0]["type"] = "nonsense"
    assert schema_errors(document) != []


def test_components_are_sorted_and_empty_fields_left_out() -> None:
    text = bom_text(Component("application", "a"), [Component("file", "z"), Component("file", "b")], tool_version="1")
    document = json.loads(text)
    assert [one["name"] for one in document["components"]] == ["b", "z"]
    assert document["components"][0] == {"bom-ref": "file:b", "type": "file", "name": "b"}
    assert "timestamp" not in document["metadata"]
    assert package_url("pypi", "x", "1~rc1") == "pkg:pypi/x@1~rc1"
