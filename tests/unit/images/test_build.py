"""Image builds use the host's Debian mirror, the right packages and reproducible tags; unused images are removed."""

from __future__ import annotations

import pytest

from headway.errors import Refused
from headway.images import build


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
