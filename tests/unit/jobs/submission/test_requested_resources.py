"""A rerun drops the dependency of its first submission."""

from __future__ import annotations

import pytest

from headway.jobs.submission.requested_resources import without_dependency
from headway.schemas.submission.submit_request import SubmitIn

WAITED = """#!/bin/bash
#SBATCH -N2 --dependency=afterok:12 --comment="a --dependency=b" # why
#SBATCH -d afterok:12
#SBATCH --kill-on-invalid-dep yes
#SBATCH hetjob
#SBATCH -Hdafterok:12 -N1
echo "#SBATCH --dependency=stays"
#SBATCH --dependency=is-no-more-read
"""


@pytest.mark.parametrize(
    "words",
    [["--dependency=afterok:1"], ["--dependency", "afterok:1"], ["-d", "any:1"], ["-dany:1"], ["--dep=singleton"],
     ["--kill-on-invalid-dep=yes"], ["--kill-on-invalid-dep", "yes"]],
)  # fmt: skip
def test_rerun_drops_dependency_flags_from_arguments(words: list[str]) -> None:
    args = ["-N1", *words, "-J", "-d", ":", *words, "--wrap", "--dependency=x"]
    assert without_dependency(SubmitIn(args=args)).args == ["-N1", "-J", "-d", ":", "--wrap", "--dependency=x"]


def test_rerun_drops_dependency_flags_from_sbatch_lines() -> None:
    assert without_dependency(SubmitIn(script=WAITED)).script == (
        '#!/bin/bash\n#SBATCH -N2 --comment="a --dependency=b" # why\n#SBATCH hetjob\n#SBATCH -H -N1\n'
        'echo "#SBATCH --dependency=stays"\n#SBATCH --dependency=is-no-more-read\n'
    )
    kept = SubmitIn(args=["-HJx"], script="#!/bin/sh\n#SBATCH   -N2   #as it was\n#SBATCH\n\n#SBATCH -n 3")
    assert without_dependency(kept) == kept
