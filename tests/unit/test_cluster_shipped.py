"""The agent as machines get it: one file that Python runs, the same bytes from the same texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headway.cluster.shipped import program, shipped
from headway.render.agent import PROGRAM
from tests.unit.node_agent import NODE

MODULES = sorted((NODE / "agent").glob("*.py"))


def test_it_runs_as_one_file_by_python_alone(tmp_path: Path) -> None:
    place = tmp_path / "agent.pyz"
    place.write_bytes(shipped()[PROGRAM].content)
    argv = [sys.executable, "-I", "-S", str(place), "nonsense"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (1, "agent: no such role: nonsense\n")


def test_the_same_texts_make_the_same_file_wherever_they_lie(tmp_path: Path) -> None:
    for path in MODULES:
        (tmp_path / path.name).write_text(path.read_text())
    assert program(tmp_path / path.name for path in MODULES) == program(MODULES)
    (tmp_path / "say.py").write_text("")
    assert program(tmp_path / path.name for path in MODULES) != program(MODULES)
