"""--stage-in changes a script correctly, and is refused where it cannot work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused
from headway.jobs.submission.prepare_job import prepare_run, prepare_submit, preview_run
from headway.jobs.submission.stage_in import stage_lines, with_stage
from headway.schemas.submission.run_request import ContainerIn, RunIn
from headway.schemas.submission.submit_request import SubmitIn
from tests.support.clusters import builders

LAB = builders.cluster(4)
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\n\n# a word\n#SBATCH --gpus-per-node=8\nset -e\n#SBATCH --too-late\npython train.py\n"


def staged(script: str | None = SCRIPT, *stage_in: str, **more: Any) -> SubmitIn:
    return with_stage(SubmitIn(script=script, stage_in=list(stage_in or ("tiny@2",)), **more))


def test_stage_in_copies_after_sbatch_lines_before_the_first_command() -> None:
    request = staged()
    assert request.script is not None
    assert request.stage_in == []
    lines = request.script.split("\n")
    assert lines[:5] == SCRIPT.split("\n")[:5]
    assert lines[-4:] == SCRIPT.split("\n")[-4:]
    first = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert lines[first] == "export HEADWAY_SCRATCH=/tmp"
    assert "cp -RT /datasets/tiny/2 /tmp/tiny ||" in lines[first + 1]
    assert prepare_submit(SubmitIn(script=SCRIPT), LAB, "ann", "1").request.script == SCRIPT


def run(script: str, tmp_path: Path, srun: str) -> subprocess.CompletedProcess[str]:
    """The script, with this srun."""
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{srun}\n")
    (tmp_path / "srun").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_GPUS_PER_NODE": "8",
    }
    return subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)


def test_stage_in_copies_with_one_task_per_node(tmp_path: Path) -> None:
    request = staged("#!/bin/sh\necho begins", "tiny@2", "wide@1")
    ran = run(request.script or "", tmp_path, 'echo "$* ${SLURM_GPUS_PER_NODE-none}"')
    assert ran.stdout.splitlines() == [
        "--overlap --nodes=3 --ntasks=3 --ntasks-per-node=1 cp -RT /datasets/tiny/2 /tmp/tiny none",
        "--overlap --nodes=3 --ntasks=3 --ntasks-per-node=1 cp -RT /datasets/wide/1 /tmp/wide none",
        "begins",
    ]


def test_failed_stage_in_ends_the_script(tmp_path: Path) -> None:
    ran = run(staged("#!/bin/sh\necho begins").script or "", tmp_path, "exit 3")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "tiny@2 could not be copied to every node" in ran.stderr


@pytest.mark.parametrize("head", ["#!/bin/sh", "#! /usr/bin/env bash", "#!/usr/bin/zsh -l", "#!/bin/bash -l\r"])
def test_stage_in_works_with_every_shell_shebang(head: str) -> None:
    assert "cp -RT" in (staged(f"{head}\ntrue").script or "")


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        ({"script": "#!/usr/bin/env python3\nprint()"}, "needs a shell script"),
        ({"script": "#!/opt/fish\ntrue"}, "needs a shell script"),
        ({"script": None, "args": ["--wrap=true"]}, "--wrap has none"),
        ({"script": "#!/bin/sh\n#SBATCH --container-image=x\n"}, "outside the container"),
        ({"script": "#!/bin/sh\n", "args": ["--container-image=x"]}, "outside the container"),
        ({"script": "#!/bin/sh\n", "args": ["-N1", "--container-im", "x"]}, "outside the container"),
        ({"script": "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n"}, "nodes of the first component"),
        ({"script": "#!/bin/sh\n", "args": ["-N1", ":", "-N2"]}, "nodes of the first component"),
    ],
)
def test_stage_in_is_refused_if_it_cannot_work(request_of: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        with_stage(SubmitIn(stage_in=["tiny@1"], **request_of))


def test_stage_in_refuses_two_versions_of_a_dataset() -> None:
    with pytest.raises(Refused, match="tiny is listed twice"):
        staged(SCRIPT, "tiny@1", "tiny@2")


@pytest.mark.parametrize("word", ["tiny", "tiny@1; reboot", "../x@1", "tiny@1\n"])
def test_stage_lines_refuses_invalid_dataset_references(word: str) -> None:
    with pytest.raises(ValueError, match=r"tiny|x"):
        stage_lines([word])


def test_run_script_marks_stage_in_lines_and_reports_faults() -> None:
    prepared = prepare_run(RunIn(argv=["torchrun", "train.py"], nodes=2, stage_in=["tiny@2"]), LAB, "ann", "1")
    assert prepared.script is not None
    texts = [line.text for line in prepared.script.lines]
    (copy,) = [line for line in prepared.script.lines if "cp -RT" in line.text]
    assert copy.origin == "--stage-in"
    assert texts.index("export HEADWAY_SCRATCH=/tmp") < texts.index(copy.text) < texts.index('eval "$settings"')
    two = ["-N1", ":", "-N2"]
    image = ContainerIn(image="docker://x")
    _, faults = preview_run(RunIn(argv=["x"], stage_in=["a@1", "a@2"], container=image, sbatch=two), LAB, "ann")
    assert [fault.message for fault in faults] == [
        "a is listed twice",
        "would copy only to the nodes of the first component",
        "would copy to a folder outside the container",
    ]
