"""Requests that contradict each other or the launcher are found."""

from __future__ import annotations

import pytest

from tests.support.batch_scripts import finding_of, fixed, found, script


def test_gpus_requested_twice_lose_the_older_option() -> None:
    text = script("#SBATCH --gres=gpu:8", "#SBATCH --gpus=16")
    assert found(text)["gres-and-gpus"] == 3
    assert fixed("gres-and-gpus", text) == script("#SBATCH --gpus=16")
    both = script("#SBATCH --gres=gpu:8,shard:2", "#SBATCH --gpus=8")
    assert fixed("gres-and-gpus", both) == both  # the shards stay requested
    assert "gres-and-gpus" not in found(script("#SBATCH --gres=shard:2", "#SBATCH --gpus=8"))


def test_gpus_of_a_node_requested_twice_with_one_number_do_no_harm() -> None:
    assert "gres-and-gpus" not in found(script("#SBATCH --gres=gpu:8", "#SBATCH --gpus-per-node=8"))
    other = script("#SBATCH --gres=gpu:4", "#SBATCH --gpus-per-node=8")
    assert found(other)["gres-and-gpus"] == 3
    assert fixed("gres-and-gpus", other) == other  # which number is meant is not known


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-N1 --ntasks-per-node=8 --gpus-per-node=8 --gpus-per-task=8",
         "8 tasks of a node with 8 GPUs each need 64, not --gpus-per-node=8."),
        ("-N2 --ntasks-per-node=4 --gpus-per-task=h100:2 --gpus-per-node=h100:4",
         "4 tasks of a node with 2 GPUs each need 8, not --gpus-per-node=h100:4."),
        ("-N1 -n2 --gpus-per-task=1 --gpus-per-node=8",
         "2 tasks of a node with 1 GPU each need 2, not --gpus-per-node=8."),
        ("-n8 --gpus-per-task=2 --gpus=4", "8 tasks with 2 GPUs each need 16, not --gpus=4."),
        ("-N2 --ntasks-per-node=8 --gpus-per-task=1 --gpus=8", "16 tasks with 1 GPU each need 16, not --gpus=8."),
        ("-N1 --ntasks-per-node=8 --gpus-per-node=8 --gpus-per-task=1", ""),
        ("-n8 --gpus-per-task=1 --gpus=8", ""),
        ("--gpus-per-task=1 --gpus=8", ""),  # Slurm makes 8 tasks
        ("-N2-4 -n8 --gpus-per-task=1 --gpus-per-node=4", ""),
        ("--ntasks-per-node=8 --gpus-per-task=1 --gpus=8", ""),
        ("-n8 --gpus-per-task=x --gpus=4", ""),
    ],
)  # fmt: skip
def test_gpus_of_all_tasks_are_those_of_the_job(options: str, message: str) -> None:
    text = script(*(f"#SBATCH {option}" for option in options.split()), "srun ./a")
    has = "tasks-times-gpus" in found(text)
    assert has is bool(message)
    if has:
        finding = finding_of("tasks-times-gpus", text)
        assert (finding.message, "gpus-per-task" in text.splitlines()[finding.line - 1]) == (message, True)


def test_srun_starts_torchrun_once_per_node() -> None:
    text = script("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=8", "srun torchrun --nproc-per-node=8 train.py")
    assert found(text)["launcher-per-task"] == 4
    assert "#SBATCH --ntasks-per-node=1" in fixed("launcher-per-task", text)
    one_task = text.replace("srun torchrun", "srun --ntasks-per-node=1 torchrun")
    assert "launcher-per-task" not in found(one_task)
    assert "launcher-per-task" not in found(text.replace("torchrun --nproc-per-node=8", "python"))
    assert "launcher-per-task" not in found(text.replace("nproc-per-node=8", "nproc-per-node=1"))  # one for each task


@pytest.mark.parametrize(
    "launch",
    [
        "srun python train.py", "mpirun ./solver", "bash -c 'srun hostname'", "torchrun train.py",
        'RUN="srun --exact"\n$RUN ./solver', "./start.sh", "molpro in.inp", "python a.py --workers $SLURM_NTASKS",
        "python a.py --workers 4", "for i in a b c d; do python $i.py & done; wait", "if true; then\n  echo x\nfi",
        "start()\n{\n  echo x\n}\nstart", "SEEDS=(1 2 3)\n", "SETS=(\n  small\n  large\n)", "unset SLURM_GTIDS",
        "case $1 in\n  prepare) echo x ;;\nesac", 'HERE="$( cd "$( dirname x )" && pwd )"', "find . | parallel gzip",
    ],
)  # fmt: skip
def test_tasks_that_something_starts(launch: str) -> None:
    assert "tasks-without-srun" not in found(script("#SBATCH --ntasks=4", launch))


def test_tasks_that_nothing_starts() -> None:
    text = script("#SBATCH --ntasks=4", "module load pytorch", "python train.py")
    finding = finding_of("tasks-without-srun", text)
    assert (finding.line, finding.message) == (5, "python runs once, not as 4 tasks.")


@pytest.mark.parametrize(
    ("request_line", "given", "has"),
    [
        ("--gpus-per-node=8", "4", True),
        ("--gres=gpu:h100:8", "8", False),
        ("--gpus=2", "4", True),
        ("--gres=gpu:8", "8", False),
    ],
)
def test_processes_of_torchrun_are_as_many_as_gpus(request_line: str, given: str, has: bool) -> None:
    text = script(f"#SBATCH {request_line}", "torchrun \\", f"  --nproc_per_node={given} train.py")
    assert ("processes-and-gpus" in found(text)) is has
    if has:
        assert found(text)["processes-and-gpus"] == 5
        assert "--nproc_per_node=gpu train.py" in fixed("processes-and-gpus", text)


def test_missing_time_limit_is_a_note() -> None:
    assert finding_of("no-time", "#!/bin/bash\n#SBATCH -N1\nhostname\n").level == "note"
    assert "no-time" not in found("#!/bin/bash\nhostname\n")  # its flags may be on the command line
