"""A resubmission shows changed lines and options, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from headway.web.views.submit_page.resubmission import DiffLine, changes, copied_from
from headway.web.views.submit_page.submit_form import SubmitForm

SOURCE = SubmitForm(script="#!/bin/bash\n#SBATCH --nodes=2\n\nsrun a\nsrun b\nsrun c", args="--lr 1")
FORM = replace(SOURCE, copied="7", before=copied_from(SOURCE))


def test_changed_line_is_shown_with_its_place_and_neighbours() -> None:
    assert changes(FORM) == ()
    assert changes(replace(FORM, script=SOURCE.script.replace("srun c", "srun d"))) == (
        DiffLine("place", "line 4"),
        DiffLine("same", "srun a"),
        DiffLine("same", "srun b"),
        DiffLine("removed", "srun c"),
        DiffLine("added", "srun d"),
    )


def test_changed_options_are_named() -> None:
    assert changes(replace(FORM, args="", nodes="4")) == (
        DiffLine("place", "arguments"),
        DiffLine("removed", "--lr 1"),
        DiffLine("place", "nodes"),
        DiffLine("added", "4"),
    )


def test_form_of_no_other_job_has_no_comparison() -> None:
    assert changes(SOURCE) is None
    for broken in ("{", "[]"):
        assert changes(replace(FORM, before=broken)) is None
