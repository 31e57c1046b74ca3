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
    for broken in ("{", "[]", "[" * 200_000):
        assert changes(replace(FORM, before=broken)) is None


def test_options_stand_before_a_long_script_and_left_out_lines_are_counted() -> None:
    long = replace(SOURCE, script="\n".join(f"srun old{i}" for i in range(300)))
    draft = replace(long, before=copied_from(long), script="\n".join(f"srun new{i}" for i in range(300)), nodes="64")
    found = changes(draft)
    assert found is not None
    assert found[:2] == (DiffLine("place", "nodes"), DiffLine("added", "64"))
    assert found[-1] == DiffLine("place", "and 203 more lines")
    assert len(found) == 401


def test_change_in_a_long_script_is_shown_with_its_place() -> None:
    lines = [f"srun {i % 10}" for i in range(5000)]
    draft = replace(SOURCE, before=copied_from(replace(SOURCE, script="\n".join(lines))))
    assert changes(replace(draft, script="\n".join([*lines[:3000], "srun b", *lines[3001:]]))) == (
        DiffLine("place", "line 2999"),
        DiffLine("same", "srun 8"),
        DiffLine("same", "srun 9"),
        DiffLine("removed", "srun 0"),
        DiffLine("added", "srun b"),
        DiffLine("same", "srun 1"),
        DiffLine("same", "srun 2"),
    )


def test_scripts_that_take_long_to_compare_are_only_counted() -> None:
    repeated = "\n".join(["srun python a.py"] * 5000)
    draft = replace(SOURCE, before=copied_from(replace(SOURCE, script=repeated)))
    assert changes(replace(draft, script=f"#!/bin/bash\n{repeated}\ny")) == (
        DiffLine("place", "the script differs in up to 5002 lines, too many to compare"),
    )
