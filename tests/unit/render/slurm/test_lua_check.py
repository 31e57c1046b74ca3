"""job_submit.lua is checked by a compiler of Lua where no slurmctld can try it yet."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headway.render.slurm.candidate_check import lua_check


@pytest.mark.parametrize(
    ("luac", "code", "words"), [("exit 1", 1, ""), ('echo "$@"', 0, "-p {}/job_submit.lua"), ("", 0, "")]
)
def test_compiler_decides_if_there_is_one(tmp_path: Path, luac: str, code: int, words: str) -> None:
    if luac:
        program = tmp_path / "luac"
        program.write_text(f"#!/bin/sh\n{luac}\n")
        program.chmod(0o755)
    (argv,) = lua_check(str(tmp_path))
    shell = "/bin/sh"
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([shell, *argv[1:]], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, words.format(tmp_path))
