"""Mounts and links of a container."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def test_container_mounts_are_parsed(runtime: dict[str, ModuleType]) -> None:
    found = runtime["reference"].mounts("/a:/b:ro,/c:../d:rw+rbind,/e,tmpfs:/f")
    assert [(m.source, m.target, m.read_only) for m in found] == [
        ("/a", "/b", True), ("/c", "/d", False), ("/e", "/e", False), ("tmpfs", "/f", False),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["/a:/", ":/b", "/a:/b:ro+rw", "/a:/b:exec", "/a:/b/../..", "/a:/proc"])
def test_invalid_container_mounts_are_refused(runtime: dict[str, ModuleType], text: str) -> None:
    with pytest.raises(runtime["messages"].Failed, match="--container-mounts"):
        runtime["reference"].mounts(text)


def test_image_symlinks_are_resolved_inside_the_image(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    made = runtime["sandbox"].Sandbox(str(tmp_path), {})
    made.make()
    root = Path(made.root)
    (root / "etc").mkdir()
    (root / "etc/passwd").symlink_to("../../../../run/passwd")
    (root / "up").symlink_to("/etc")
    (root / "ring").symlink_to("ring")
    assert made.inside("/etc/passwd") == "/run/passwd"
    assert made.inside("/up/x/../y") == "/etc/y"
    assert made.inside("/../../a") == "/a"
    with pytest.raises(runtime["messages"].Failed, match="loop of symbolic links"):
        made.inside("/ring")
