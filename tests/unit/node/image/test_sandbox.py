"""Links of a container's image."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


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
