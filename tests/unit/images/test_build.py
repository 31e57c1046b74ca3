"""Image builds use the host's Debian mirror, the right packages and reproducible tags; unused images are removed."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import NotFound, Refused
from headway.images import apt_mirror, build, local_images, recipe
from headway.images.apt_mirror import Mirror, SourceEntry, parse_deb822, parse_one_line, read_sources, sources_for_suite
from headway.transport.process import CommandResult

DEB822 = """# comment
Types: deb deb-src
URIs: http://mirror.test/debian/
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.test/debian
Suites: trixie
Components: main
"""


def test_parses_deb822_sources() -> None:
    found = list(parse_deb822(DEB822))
    assert [(entry.uri, entry.suite) for entry in found] == [
        ("http://mirror.test/debian", "bookworm"),
        ("http://mirror.test/debian", "bookworm-updates"),
        ("http://mirror.test/debian-security", "bookworm-security"),
    ]


def test_parses_one_line_sources() -> None:
    text = (
        "# deb http://off.test/debian sid main\n"
        "deb [arch=amd64 trusted=yes] http://mirror.test/debian/ trixie main contrib # ours\n"
        "deb-src http://mirror.test/debian trixie main\n"
        "deb http://other.test/apt trixie extras\n"
    )
    assert list(parse_one_line(text)) == [SourceEntry("http://mirror.test/debian", "trixie", "[trusted=yes]")]


def test_source_options_keep_check_valid_until_and_trusted() -> None:
    (entry,) = parse_one_line("deb [check-valid-until=no] http://mirror.test/debian trixie main\n")
    assert entry.options == "[check-valid-until=no]"
    stanza = "Types: deb\nURIs: http://mirror.test/debian\nSuites: trixie\nComponents: main\nTrusted: yes\n"
    (entry,) = parse_deb822(f"{stanza}Check-Valid-Until: no\n")
    assert entry.options == "[trusted=yes check-valid-until=no]"


async def test_host_mirror_keeps_apt_proxy_and_validity_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (
        'Acquire::http::Proxy "http://proxy.test:3128";\nAcquire::Check-Valid-Until "false";\nAcquire::Retries "3";\n'
    )
    asked: list[str] = []

    async def run(argv: list[str], **_: Any) -> CommandResult:
        asked.append(argv[-2])
        return CommandResult(tuple(argv), 0, said, "", 0.0)

    monkeypatch.setattr(apt_mirror, "run", run)
    monkeypatch.setattr(apt_mirror, "read_sources", lambda: list(parse_deb822(DEB822)))
    found = await apt_mirror.host_mirror("trixie")
    assert found.apt_options == ('Acquire::http::Proxy "http://proxy.test:3128"', 'Acquire::Check-Valid-Until "false"')
    assert len(found.lines) == 3
    newest = await apt_mirror.host_mirror("forky", released=False)
    assert newest.lines == ("deb http://mirror.test/debian forky main",), "old lists beside it, which apt refuses"


def test_reads_all_apt_source_files_of_host(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "debian.sources").write_text(DEB822)
    (folder / "backup.sources.save").write_text(DEB822)
    (tmp_path / "sources.list").write_text("deb http://first.test/debian bookworm main\n")
    assert [entry.uri for entry in read_sources(tmp_path)][:2] == [
        "http://first.test/debian",
        "http://mirror.test/debian",
    ]
    assert len(read_sources(tmp_path)) == 4


def test_other_suite_uses_same_mirror() -> None:
    line, more = sources_for_suite(parse_deb822(DEB822), "trixie")
    assert line == "deb http://mirror.test/debian trixie main"
    assert more == [
        "deb http://mirror.test/debian trixie-updates main",
        "deb http://mirror.test/debian-security trixie-security main",
    ]


def test_refuses_third_party_sources_as_debian_mirror() -> None:
    with pytest.raises(Refused, match="no Debian mirror"):
        sources_for_suite(parse_one_line("deb https://vendor.test/node nodistro main\n"), "trixie")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "image"
    shutil.copytree(recipe.files_folder(), copy)
    monkeypatch.setattr(recipe, "files_folder", lambda: copy)
    return copy


def test_image_tag_changes_only_with_build_inputs(files: Path) -> None:
    before, base = recipe.inputs_hash("debian13"), recipe.base_hash("debian13")
    assert len(before) == 12
    cache = files / "rootfs" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"1")
    assert recipe.inputs_hash("debian13") == before
    tool = files / "rootfs" / "usr" / "bin" / "nvidia-smi"
    tool.chmod(0o644)
    no_longer_executable = recipe.inputs_hash("debian13")
    (files / "rootfs" / "etc" / "new").write_text("")
    with_new_file = recipe.inputs_hash("debian13")
    assert len({before, no_longer_executable, with_new_file, recipe.inputs_hash("debian12")}) == 4
    assert recipe.base_hash("debian13") == base, "a file of the upper layer must not install the packages again"
    (files / "after_packages.sh").write_text("#!/bin/sh\n")
    assert recipe.base_hash("debian13") != base
    assert recipe.inputs_hash("debian13") != with_new_file


def test_archive_files_belong_to_root(files: Path) -> None:
    packed = io.BytesIO(build._archive(files / "rootfs", {"usr/lib/x": b"1"}))
    with tarfile.open(fileobj=packed) as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
    assert members["usr/bin/nvidia-smi"].mode == 0o755
    assert members["etc/ssh/sshd_config.d/00-headway-boot.conf"].mode == 0o644
    assert members["usr/lib/x"].size == 1


def test_mmdebstrap_arguments_name_suite_mirror_and_packages(files: Path) -> None:
    there = Mirror(("deb http://mirror.test/debian trixie main",))
    argv = build.mmdebstrap_argv(recipe.get_recipe("debian13"), files, there, Path("/work"))
    assert argv[-3:] == ["trixie", "-", "deb http://mirror.test/debian trixie main"]
    include = next(word for word in argv if word.startswith("--include="))
    assert "slurm-wlm-emulator" not in include
    for package in ("slurmrestd", "libnss-extrausers", "python3-torch"):
        assert package in include.removeprefix("--include=").split(",")


def test_unknown_image_error_lists_known_images() -> None:
    with pytest.raises(NotFound, match="debian13, debian14, debian12"):
        recipe.get_recipe("ubuntu")


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


class FakePodman:
    """Keeps images as podman does: one that a container or a later image rests on can't be removed."""

    def __init__(self) -> None:
        self.images: list[dict[str, Any]] = []

    def add(self, tag: str, *, parent: str = "", machines: int = 0, **labels: str) -> None:
        item = {"Id": f"id of {tag}", "Names": [tag], "ParentId": f"id of {parent}", "Containers": machines}
        self.images.append({**item, "Labels": {"headway": "1", **{f"headway.{k}": v for k, v in labels.items()}}})

    async def run(self, argv: Sequence[str], *, timeout_s: float, check: bool = True) -> CommandResult:
        match list(argv):
            case ["podman", "images", "--filter", label, "--format", "json"]:
                key = label.removeprefix("label=")
                return CommandResult(tuple(argv), 0, json.dumps([i for i in self.images if key in i["Labels"]]), "", 0)
            case ["podman", "rmi", tag]:
                (one,) = [item for item in self.images if tag in item["Names"]]
                held = one["Containers"] or any(item["ParentId"] == one["Id"] for item in self.images)
                if not held:
                    self.images.remove(one)
                return CommandResult(tuple(argv), 2 if held else 0, "", "in use" if held else "", 0)
        raise AssertionError(f"unregistered call: {argv}")


async def test_removes_only_unused_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    podman = FakePodman()
    monkeypatch.setattr(local_images, "run", podman.run)
    monkeypatch.setattr(local_images, "host_lock_folder", lambda: tmp_path)
    base = f"{recipe.BASE_REPOSITORY}:debian13-{recipe.base_hash('debian13')}"
    podman.add(base, base="debian13")
    for old in ("held", "free"):
        podman.add(f"{recipe.BASE_REPOSITORY}:debian13-{old}", base="debian13")
    current = recipe.inputs_hash("debian13")
    for text, parent, machines in ((current, base, 0), ("used", "localhost/headway-base:debian13-held", 5),
                                   ("gone1", base, 0), ("gone2", "localhost/headway-base:debian13-free", 0)):  # fmt: skip
        tag = f"{recipe.REPOSITORY}:debian13-{text}"
        podman.add(tag, parent=parent, machines=machines, base="debian13", image="debian13", hash=text)
    podman.add("docker.test/other:1")
    assert await local_images.remove_unused_images() == (
        "localhost/headway-node:debian13-gone1",
        "localhost/headway-node:debian13-gone2",
        "localhost/headway-base:debian13-free",
    )
    assert [item["Names"][0].rpartition("-")[2] for item in podman.images[1:-1]] == ["held", current, "used"]
    assert await local_images.remove_unused_images() == ()
