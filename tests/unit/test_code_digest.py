"""The digest of the code changes with each module, and not with what is no code."""

from __future__ import annotations

from pathlib import Path

from headway.code_digest import code_digest


def test_digest_changes_with_each_module(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "a.py").write_text("a = 1\n")
    seen = [code_digest(tmp_path)]
    (tmp_path / "api" / "a.py").write_text("a = 10\n")
    seen.append(code_digest(tmp_path))
    (tmp_path / "b.py").touch()
    seen.append(code_digest(tmp_path))
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    seen.append(code_digest(tmp_path))
    assert len(set(seen)) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.py").touch()
    (tmp_path / "page.html").touch()
    assert code_digest(tmp_path) == seen[-1]
