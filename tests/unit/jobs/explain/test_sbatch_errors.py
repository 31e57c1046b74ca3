"""Refusals of sbatch get a hint."""

from __future__ import annotations

import pytest

from headway.errors import Refused
from headway.jobs.explain.sbatch_errors import sbatch_hint, with_sbatch_hints
from tests.support.clusters import builders

LAB = builders.cluster(4)


@pytest.mark.parametrize(
    ("text", "help_"),
    [
        ("Invalid account or account/partition combination specified", "alice is in"),
        ("invalid partition specified: x", "lab has train"),
        ("Batch job submission failed: Invalid qos specification", "leave out --qos: a team's limits are its QOS"),
        ("Requested node configuration is not available", "8 GPUs"),
        ("Batch job submission failed: Job dependency problem", "forgets jobs"),
        ("something new", ""),
    ],
)
def test_sbatch_refusals_get_a_hint(text: str, help_: str) -> None:
    assert help_ in sbatch_hint(text, LAB, "alice") if help_ else sbatch_hint(text, LAB, "alice") == ""
    with pytest.raises(Refused) as caught, with_sbatch_hints(LAB, "alice"):
        raise Refused(text)
    assert help_ in caught.value.hint
