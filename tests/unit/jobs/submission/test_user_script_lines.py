"""Arguments of a script become part of it, unchanged, so that Slurm does not show them to other users."""

from __future__ import annotations

import subprocess

import pytest

from headway.jobs.submission.user_script_lines import insert_arguments, split_arguments

SHOW = 'printf "%s|" "$@"\n'
HOSTILE = [
    "$(id)",
    "`id`",
    "it's",
    '"',
    "\\",
    "",
    "a  b",
    "-n",
    "--",
    "#SBATCH --uid=0",
    "a\n#SBATCH -N9\nb",
    "\r\n",
    "é",
    "x=1;y",
    "!",
]


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_shell_gets_the_arguments_unchanged(shell: str) -> None:
    script, left = insert_arguments(f"#!/usr/bin/env {shell}\n#SBATCH -N2\n\n{SHOW}", HOSTILE)
    ran = subprocess.run([shell, "-c", script], capture_output=True, timeout=30, check=True)
    assert left == []
    assert ran.stdout.decode().split("|") == [*HOSTILE, ""]
    assert "\r\n" not in script, "sbatch refuses it"


def test_arguments_are_found_again_in_the_script_that_slurm_has() -> None:
    before = f"#!/bin/bash\n#SBATCH -N2\n{SHOW}"
    assert split_arguments(insert_arguments(before, HOSTILE)[0]) == (before, HOSTILE)
    for own in (before, f"#!/bin/bash\nset -- a b\n{SHOW}"):
        assert split_arguments(own) == (own, []), "the user's own line"


def test_arguments_come_before_the_first_command_and_after_the_sbatch_lines() -> None:
    script, _ = insert_arguments("#!/bin/bash -l\n#SBATCH -N2\ntrue\n", ["--password=S"])
    assert [line.partition("  #")[0] for line in script.splitlines()] == [
        "#!/bin/bash -l",
        "#SBATCH -N2",
        "set -- --password=S",
        "true",
    ]
    assert insert_arguments("#!/bin/sh", ["x"])[0].startswith("#!/bin/sh\nset -- x")


def test_scripts_of_other_languages_keep_their_arguments() -> None:
    for script in ("#!/usr/bin/env python3\nimport sys\n", "#!/bin/csh\n"):
        assert insert_arguments(script, ["x"]) == (script, ["x"])
