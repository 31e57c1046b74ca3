"""A missing QOS is added once, by the real shell and a small sacctmgr."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headway.slurm.accounting.sacctmgr_commands import add_missing_qos_argv

SACCTMGR = """\
#!/bin/sh
echo "$@" >> calls
case $* in
*"show qos"*) cat qos ;;
*"add qos"*) [ ! -e away ] && echo "$4" >> qos ;;
esac
"""
ADDED = "-i add qos partition.debug"


@pytest.mark.parametrize(
    ("there", "away", "added", "code"),
    [
        ("normal\npartition.debug2\n", False, [ADDED], 0),
        ("normal\npartition.debug\n", False, [], 0),
        ("normal\n", True, [ADDED], 1),
    ],
)
def test_missing_qos_is_added_once(tmp_path: Path, there: str, away: bool, added: list[str], code: int) -> None:
    (tmp_path / "sacctmgr").write_text(SACCTMGR)
    (tmp_path / "sacctmgr").chmod(0o755)
    (tmp_path / "qos").write_text(there)
    if away:
        (tmp_path / "away").touch()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        add_missing_qos_argv("partition.debug"), cwd=tmp_path, env=env, check=False, capture_output=True
    )
    assert ran.returncode == code
    assert [line for line in (tmp_path / "calls").read_text().splitlines() if "add" in line] == added
