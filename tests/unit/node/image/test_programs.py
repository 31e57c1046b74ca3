"""The programs of node/image/bin print what people know from other clusters: seff from accounting; torchrun of the Python that
comes first on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headway.images import recipe

BIN = recipe.files_folder() / "bin"
# As sacct 24.11 prints it.
SACCT = """\
3|3|login|ann|ann|COMPLETED|0:0|2|48|08:00.500|100|billing=1000,cpu=48,gres/gpu=2,mem=8192M,node=2|
3.batch|3.batch|login||||0:0|1|24|00:00.038|100|cpu=24,gres/gpu=1,mem=4096M,node=1|cpu=00:00:00,energy=0,mem=5296128,pages=0
3.0|3.0|login|||COMPLETED|0:0|2|48|00:00.033|99|cpu=48,mem=8192M,node=2|cpu=00:00:00,energy=0,mem=2147483648,pages=0
"""
PENDING = "4_7|9|login|ann|ann|PENDING|0:0|1|8|00:00:00|0||\n"


def seff(folder: Path, answer: str, *words: str) -> subprocess.CompletedProcess[str]:
    fake = folder / "sacct"
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}END\n")
    fake.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    argv = [sys.executable, "-IS", str(BIN / "seff"), *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_seff_prints_the_lines_of_slurms_own(tmp_path: Path) -> None:
    assert seff(tmp_path, SACCT, "3").stdout.splitlines() == [
        "Job ID: 3",
        "Cluster: login",
        "User/Group: ann/ann",
        "State: COMPLETED (exit code 0)",
        "Nodes: 2",
        "Cores per node: 24",
        "GPUs: 2",
        "CPU Utilized: 00:08:00",
        "CPU Efficiency: 10.01% of 01:20:00 core-walltime",
        "Job Wall-clock time: 00:01:40",
        "Memory Utilized: 2.00 GB",
        "Memory Efficiency: 25.00% of 8.00 GB (4.00 GB/node)",
    ]


def test_seff_says_when_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert "Efficiency not available for jobs in the PENDING state." in seff(tmp_path, PENDING, "4_7").stdout
    unknown = seff(tmp_path, "", "77")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "job 77 not found" in unknown.stderr
    assert seff(tmp_path, "", "x").returncode == 2


def test_torchrun_is_that_of_the_first_python_on_the_path(tmp_path: Path) -> None:
    package = tmp_path / "torch/distributed"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "run.py").write_text("import sys\ndef main():\n    print(sys.executable, *sys.argv[1:])\n    return 3\n")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = [str(BIN / "torchrun"), "--nnodes=2", "train.py"]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert ran.stdout.split()[1:] == ["--nnodes=2", "train.py"]

    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "has no torch: install it there" in ran.stderr
