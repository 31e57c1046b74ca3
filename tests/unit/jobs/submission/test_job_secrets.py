"""The secrets that a job asks for, and how sbatch is told."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headway.jobs.submission.job_secrets import requested_secrets, with_secrets
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitIn
from tests.support.clusters import builders


def test_names_come_from_the_request_its_flags_and_the_script() -> None:
    script = "#!/bin/bash\n#SBATCH --secret=a,b\n#SBATCH --secret c\necho\n#SBATCH --secret=late\n"
    request = SubmitIn(script=script, args=["-N2", "--secret", "d", "--secret=a"], secrets=["e"])
    assert requested_secrets(request) == ["e", "d", "a", "b", "c"]


def test_names_of_the_request_become_an_option_of_sbatch() -> None:
    made = with_secrets(SubmitIn(script="#!/bin/sh\n", args=["-N2"], secrets=["wandb", "hf"]))
    assert (made.args, made.secrets) == (["--secret=wandb,hf", "-N2"], [])


def test_run_script_asks_for_its_secrets() -> None:
    made = prepare_run(RunIn(argv=["python", "train.py"], secrets=["wandb"]), builders.cluster(2), "alice", "mark")
    assert "#SBATCH --secret=wandb" in (made.request.script or "")
    assert requested_secrets(made.request) == ["wandb"]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "../x", "1a", "$(id)", "a\n#SBATCH --uid=0", "a" * 65])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        RunIn(argv=["true"], secrets=[name])
