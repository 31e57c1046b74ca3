"""The value of --container-mounts is parsed, or refused with what to write."""

from __future__ import annotations

from types import ModuleType

import pytest


def test_container_mounts_are_parsed(runtime: dict[str, ModuleType]) -> None:
    found = runtime["mounts_option"].parse_mounts("/a:/b:ro,/c:../d:rw+rbind,/e,tmpfs:/f")
    assert [(m.source, m.target, m.read_only) for m in found] == [
        ("/a", "/b", True), ("/c", "/d", False), ("/e", "/e", False), ("tmpfs", "/f", False),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["/a:/", ":/b", "/a:/b:ro+rw", "/a:/b:exec", "/a:/b/../..", "/a:/proc"])
def test_invalid_container_mounts_are_refused(runtime: dict[str, ModuleType], text: str) -> None:
    with pytest.raises(runtime["messages"].Failed, match="--container-mounts"):
        runtime["mounts_option"].parse_mounts(text)
