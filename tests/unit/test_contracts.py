"""Rules that import-linter cannot check: only the permitted packages name Slurm's programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_trees import SOURCE, modules_below, nodes

PROGRAMS = frozenset({"sbatch", "scancel", "scontrol", "squeue", "sacct", "sacctmgr", "sshare", "sinfo", "srun"})
# What names a program and is no argv that the server runs, with the reason.
ALLOWED = {
    "domain/slurm/other_schedulers.py": "a table of commands that take the place of another scheduler's",
    "schemas/submission/run_request.py": "srun is a launcher that a user chooses",
    "web/views/submit_page/submit_form.py": "srun is a launcher that a user chooses",
    "jobs/submission/batch_script.py": "renders a batch script",
    "jobs/remote/helper_pool.py": "the name of a request to the user helper, which itself builds the argv",
    "jobs/submission/submit.py": "the name of a request to the user helper, which itself builds the argv",
    "services/jobs/details.py": "a kind of submission in the REST API",
    "cli/commands/jobs/job.py": "a row of a table",
    "cli/commands/jobs/shell.py": "runs in the user's own SSH session; clients cannot import headway.slurm",
}


def _named_programs(path: Path) -> Iterator[str]:
    for node in nodes(path, ast.Constant):
        if node.value in PROGRAMS:
            yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.value}"


def test_only_the_slurm_package_and_rendered_files_name_slurm_programs() -> None:
    # lint and convert read and write the scripts of people, in which these programs occur.
    rooms = ("slurm", "render", "lint", "convert")
    outside = [p for p in modules_below(SOURCE) if p.relative_to(SOURCE).parts[0] not in rooms]
    found = [program for path in outside for program in _named_programs(path)]
    assert [one for one in found if one.partition(":")[0] not in ALLOWED] == []
    assert {one.partition(":")[0] for one in found} == set(ALLOWED)  # no exception outlives its use
