"""lint agrees with the cluster's sbatch: what it calls an error sbatch refuses, and what sbatch refuses in a script's
options it finds."""

from __future__ import annotations

import pytest
from tests.cluster.jobs.lint_agreement import COUNT, compare
from tests.cluster.lab import Lab

from headway.schemas.submission.submission_check import CheckJobIn
from headway.schemas.submission.submit_request import SubmitIn

USER = "stan"


def test_errors_of_lint_are_refusals_of_sbatch(lab: Lab) -> None:
    found = compare(lab, USER, seed=7)
    assert found.false_errors == []
    assert found.refused > COUNT / 10
    assert len(found.missed) <= COUNT / 100, found.missed


@pytest.mark.parametrize("corrected", [False, True])
def test_check_of_a_cluster_has_the_findings(lab: Lab, corrected: bool) -> None:
    line = "#SBATCH --partition=train" if corrected else "#SBATCH --partition=trian"
    script = f"#!/bin/bash\n#SBATCH --time=5\n{line}\nsrun hostname\n"
    answer = lab.client.jobs.check("lab", CheckJobIn(submit=SubmitIn(script=script, user=USER)))
    assert [one.rule for one in answer.findings] == ([] if corrected else ["no-partition"])
    assert bool(answer.faults) is not corrected
