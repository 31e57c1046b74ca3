"""Converted jobs of all formats run to their end on a real cluster."""

from __future__ import annotations

import json

import pytest
from tests.cluster.containers.container_images import images
from tests.cluster.lab import Lab
from tests.support.job_files import JOB_FILES

from headway.convert.formats import Source

__all__ = ["images"]  # a fixture
USER = "vito"
HOME = f"/home/{USER}"
IMAGE = "/scratch/vito/tiny.sqsh"
CONTAINERS = (Source.KUBERNETES, Source.JOBSET, Source.PYTORCHJOB, Source.MPIJOB, Source.SAGEMAKER)
# Stands in for Ray, which the nodes do not have: the head answers while it runs, and workers name it.
RAY = """\
#!/bin/bash
case "$*" in
start*--head*) touch ~/ray-$SLURM_JOB_ID; exec sleep infinity ;;
start*--address=*:*) exec sleep infinity ;;
status) test -e ~/ray-$SLURM_JOB_ID ;;
*) exit 2 ;;
esac
"""


def converted(lab: Lab, source: Source, text: str, *options: str) -> str:
    file = lab.state / f"job.{source}"
    file.write_text(text)
    return lab.cli("convert", str(file), *options).out


def submitted(lab: Lab, script: str) -> int:
    lab.head("mkdir", "-p", f"{HOME}/bin", user=USER)
    argv = ["env", "-C", HOME, f"PATH={HOME}/bin:/usr/bin:/bin", "sbatch", "--parsable"]
    return int(lab.head(*argv, user=USER, stdin=script).out.strip())


def states(lab: Lab, job: int) -> set[str]:
    """Waits until the job, or all tasks of an array, ended, and returns their states in accounting."""
    lab.wait_array(job)

    def ended() -> set[str]:
        found = set(lab.head("sacct", "-X", "-n", "-P", "-o", "State", "-j", str(job)).out.split())
        return set() if found & {"PENDING", "RUNNING", "COMPLETING"} else found

    return lab.wait(ended, f"accounting to have the end of job {job}")


@pytest.mark.parametrize("source", [Source.PBS, Source.LSF, Source.SGE, Source.SKYPILOT, Source.DSTACK])
def test_converted_job_completes(lab: Lab, source: Source) -> None:
    job = submitted(lab, converted(lab, source, JOB_FILES[source]))
    assert states(lab, job) == {"COMPLETED"}, lab.why(job)


@pytest.mark.parametrize("source", CONTAINERS)
def test_converted_job_with_an_image_completes(lab: Lab, images: None, source: Source) -> None:
    job = submitted(lab, converted(lab, source, JOB_FILES[source], "--image", IMAGE))
    assert states(lab, job) == {"COMPLETED"}, lab.why(job)


def test_converted_rayjob_starts_ray_on_all_nodes_and_then_the_program(lab: Lab) -> None:
    lab.head("mkdir", "-p", f"{HOME}/bin", user=USER)
    lab.head("bash", "-c", 'cat >"$0" && chmod 755 "$0"', f"{HOME}/bin/ray", user=USER, stdin=RAY)
    text = JOB_FILES[Source.RAYJOB].replace('image: "rayproject/ray:2.52.0", ', "")
    job = submitted(lab, converted(lab, Source.RAYJOB, text))
    assert states(lab, job) == {"COMPLETED"}, lab.why(job)
    steps = json.loads(lab.head("sacct", "--json", "-j", str(job)).out)["jobs"][0]["steps"]
    on_nodes = [node for step in steps for node in step["nodes"]["list"]]
    assert len(set(on_nodes)) == 2


def test_slurm_script_and_its_jobset_ask_for_the_same(lab: Lab) -> None:
    """The way back: a JobSet that was made of a Slurm script becomes a script that sbatch accepts."""
    jobset = converted(lab, Source.SLURM, JOB_FILES[Source.SLURM])
    script = converted(lab, Source.JOBSET, jobset)
    done = lab.head("env", "-C", HOME, "sbatch", "--test-only", user=USER, stdin=script)
    assert "on nodes" in done.err
    for line in ("--nodes=2", "--gpus-per-node=8", "--cpus-per-task=4", "--mem=64G", "--time=01:00:00"):
        assert f"#SBATCH {line}\n" in script
