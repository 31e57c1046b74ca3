"""The agent is sent as one file that Python runs, with the same bytes for the same sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from headway.cluster.agent_bundle import agent_zip, bundled_files
from headway.render.machine_paths import AGENT_PROGRAM, TASK_PROLOG
from headway.render.slurm.hooks import task_prolog
from tests.support.clusters.render_cases import gpu_cluster
from tests.support.paths import NODE


def test_agent_program_runs_as_one_file_with_python_alone(tmp_path: Path) -> None:
    place = tmp_path / "agent.pyz"
    place.write_bytes(bundled_files()[AGENT_PROGRAM].content)
    argv = [sys.executable, "-I", "-S", str(place), "nonsense"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (1, "agent: unknown role: nonsense\n")


def test_machines_have_the_program_that_the_task_prolog_runs() -> None:
    program = next(path for path in bundled_files() if path.endswith("/mlflow_receiver/task_prolog.py"))
    assert program in task_prolog.files(replace(gpu_cluster(), mlflow=True))[TASK_PROLOG].text


def test_agent_zip_depends_only_on_its_sources(tmp_path: Path) -> None:
    shutil.copytree(NODE / "agent", tmp_path / "agent")
    assert agent_zip(tmp_path) == agent_zip(NODE)
    (tmp_path / "agent" / "journal.py").write_text("")
    assert agent_zip(tmp_path) != agent_zip(NODE)
