"""Image builds use the host's Debian mirror, the right packages and reproducible tags; unused images are removed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused
from headway.images import build
from headway.images.apt_mirror import Mirror
from headway.images.local_images import DebianRelease, ImageInfo
from headway.images.recipe import get_recipe, inputs_hash
from headway.paths import node_dir
from headway.transport.process import CommandResult


async def test_build_requires_root_before_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="root rights"):
        build._check_host()


def test_failed_build_shows_only_error_lines() -> None:
    text = "I: fine\nE: Failed to fetch http://x  404\nI: running\nE: mmdebstrap failed to run\n"
    assert build._error_lines(text) == "E: Failed to fetch http://x  404\nE: mmdebstrap failed to run"


def test_build_error_names_full_disk_and_truncates_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/small")
    text = "\n".join(
        ["E: You don't have enough free space in /var/cache/apt/archives/.", f"E: apt-get {'package ' * 900}failed"]
    )
    told = build._error_lines(text)
    assert told.startswith("E: You don't have enough free space")
    assert len(told) < 400
    assert "that of /small" in build._hint_for(text)
    assert "mirror" in build._hint_for("E: Failed to fetch http://x  Connection refused")
    assert build._hint_for("E: odd") == "run `headway image build` again"


INRELEASE = """\
-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

Origin: Debian
Suite: stable
Codename: {codename}
Date: Fri, 27 Nov 2026 08:12:31 UTC
"""


def test_state_of_debian_is_recorded_before_its_lists_are_removed(tmp_path: Path) -> None:
    lists, texts = tmp_path / "var/lib/apt/lists", {}
    lists.mkdir(parents=True)
    for codename in ("trixie-security", "trixie"):
        texts[codename] = INRELEASE.format(codename=codename)
        (lists / f"mirror.example.org_debian_dists_{codename}_InRelease").write_text(texts[codename])
    subprocess.run([node_dir() / "image/debian_releases.sh", tmp_path], check=True, timeout=30)
    (tmp_path / "usr/lib/headway/packages").write_text("slurmd 24.11.5-4\n")
    packages, releases = build._base_facts(tmp_path)
    assert releases == [
        DebianRelease(name, hashlib.sha256(texts[name].encode()).hexdigest(), "2026-11-27T08:12:31Z")
        for name in sorted(texts)
    ]
    assert packages == hashlib.sha256(b"slurmd 24.11.5-4\n").hexdigest()
    assert "mirror.example.org" not in (tmp_path / "usr/lib/headway/debian-releases").read_text()
    argv = build.mmdebstrap_argv(get_recipe("debian13"), Path("/snapshot"), Mirror(("deb x trixie main",)), tmp_path)
    assert "--customize-hook=/snapshot/debian_releases.sh" in argv


class FakePodman:
    """Knows the commands of an upper layer and no others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commits: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        match list(argv):
            case ["podman", "ps" | "create" | "umount" | "rm", *_] | ["tar", *_]:
                out = ""
            case ["podman", "mount", _]:
                out = f"{self.root}\n"
            case ["podman", "commit", *words]:
                out = ""
                self.commits.append(" ".join(words))
            case [script, root] if script.endswith("/customize.sh") and root == str(self.root):
                out = ""
            case _:
                raise AssertionError(f"unregistered call: {argv}")
        return CommandResult(tuple(argv), 0, out, "", 0.0)


@pytest.mark.parametrize("updated", [False, True])
async def test_update_gets_a_tag_of_its_own_unless_its_packages_are_the_same(
    updated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, podman = tmp_path / "usr/lib/headway", FakePodman(tmp_path)
    folder.mkdir(parents=True)
    (folder / "packages").write_text("slurmd 24.11.5-4\n")
    (folder / "debian-releases").write_text(f"trixie {'a' * 64} 2026-11-27T08:12:31Z\n")
    monkeypatch.setattr(build, "run_process", podman.run)
    made_from, packages = get_recipe("debian13"), hashlib.sha256(b"slurmd 24.11.5-4\n").hexdigest()
    manifest = build._manifest(made_from, build.files_folder())
    same = ImageInfo("debian13", "t", "id", "h", 1, "", "24.11", packages=packages)
    other = ImageInfo("debian13", "t", "id", "h", 1, "", "24.11", packages="f" * 64)
    before = other if updated else None
    tag = await build._build_upper_layer(made_from, build.files_folder(), "base", manifest, before)
    plain = f"localhost/headway-node:debian13-{inputs_hash('debian13')}"
    assert tag == (f"{plain}-{packages[:8]}" if updated else plain)
    assert f"LABEL headway.debian=trixie={'a' * 64}@2026-11-27T08:12:31Z" in podman.commits[0]
    assert manifest["debian"] == [{"suite": "trixie", "sha256": "a" * 64, "date": "2026-11-27T08:12:31Z"}]
    assert await build._build_upper_layer(made_from, build.files_folder(), "base", dict(manifest), same) == ""
    assert len(podman.commits) == 1, "without newer packages the present image stays"
