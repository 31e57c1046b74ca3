"""What is left of scripts for other schedulers is found."""

from __future__ import annotations

import pytest

from tests.support.batch_scripts import finding_of, fixed, found, script


@pytest.mark.parametrize("line", ["#PBS -l nodes=2", "#$ -pe mpi 8", "#BSUB -n 8"])
def test_lines_of_other_schedulers(line: str) -> None:
    assert found(script(line, line))["other-scheduler"] == 3
    assert finding_of("other-scheduler", script(line, line)).message.endswith("line 3 and 1 more.")


def test_variables_get_the_names_of_slurm() -> None:
    text = script("cd ${PBS_O_WORKDIR}/run$PBS_ARRAYID")
    assert fixed("other-scheduler-variable", text) == script("cd ${SLURM_SUBMIT_DIR}/run$SLURM_ARRAY_TASK_ID")
    assert found(script("cat $PBS_NODEFILE"))["other-scheduler-variable"] == 3
    assert "other-scheduler-variable" not in found(script("echo $PBS_O_WORKDIRS $SLURM_JOB_ID"))


def test_commands_of_other_schedulers() -> None:
    assert found(script("qsub next.pbs"))["other-scheduler-command"] == 3


@pytest.mark.parametrize(
    "lines",
    [
        ('if [ -n "$PBS_O_WORKDIR" ]; then', "  cd $PBS_O_WORKDIR", "fi"),
        ("cd ${PBS_O_WORKDIR:-$SLURM_SUBMIT_DIR}",),
        ("NSLOTS=4", "./solver -t $NSLOTS"),
        ("if command -v qsub; then", "  qsub next.pbs", "fi"),
    ],
)
def test_script_for_several_schedulers(lines: tuple[str, ...]) -> None:
    assert not found(script(*lines)).keys() & {"other-scheduler-variable", "other-scheduler-command"}
