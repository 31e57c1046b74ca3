"""A text that is a job file of another scheduler is offered as a batch script; other texts are left alone."""

from __future__ import annotations

import pytest

from headway.services.jobs.scripts.conversion import MAX_FORM_BYTES, offer_conversion

JOB = "kind: Job\napiVersion: batch/v1\nspec: {template: {spec: {containers: [{name: a, image: x, command: [hostname]}]}}}\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("#!/bin/sh\n#PBS -N a\nhostname\n", "PBS script"),
        ("#!/bin/sh\n#BSUB -J a\nhostname\n", "LSF script"),
        ("#!/bin/sh\n#$ -N a\nhostname\n", "Grid Engine script"),
        (JOB, "Kubernetes Job"),
    ],
)
async def test_job_file_of_another_scheduler_is_converted(text: str, name: str) -> None:
    offered = await offer_conversion(text)
    assert offered is not None
    assert (offered.name, offered.faults) == (name, ())
    assert offered.text.startswith("#!/bin/")
    assert "hostname" in offered.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "hostname\n",
        "#!/bin/sh\nhostname\n",
        "#!/bin/sh\n#SBATCH --time=1\n#PBS -N a\nhostname\n",
        "#!/bin/sh\n#SBATCH --time=1\nhostname\n",
        "a: [1, 2\n",
        "a: 1\n",
        "#!/bin/sh\n#PBS -N a\n" + "x" * MAX_FORM_BYTES,
    ],
)
async def test_other_text_is_left_alone(text: str) -> None:
    assert await offer_conversion(text) is None


async def test_job_file_that_cannot_be_converted_says_why() -> None:
    offered = await offer_conversion(JOB.replace("[{name: a, image: x, command: [hostname]}]", "[]"))
    assert offered is not None
    assert (offered.text, bool(offered.faults)) == ("", True)
