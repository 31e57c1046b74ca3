"""Steps inside steps, one node of several, fixed ports and lost ends are found."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.batch_scripts import finding_of, fixed, found, script


@pytest.mark.parametrize("line", ["srun bash -c 'cd x; srun python train.py'", "srun -N2 srun hostname"])
def test_step_inside_a_step(line: str) -> None:
    assert found(script(line))["nested-srun"] == 3


@pytest.mark.parametrize(
    "line", ["srun bash -c 'echo srunning'", "srun -n1 hostname; srun -n2 hostname", "srun ./srun-bench"]
)
def test_steps_in_a_row_are_not_nested(line: str) -> None:
    assert "nested-srun" not in found(script(line))


def test_launcher_on_one_of_several_nodes() -> None:
    text = script("#SBATCH --nodes=2", "export A=1; torchrun --nnodes=2 train.py")
    assert fixed("one-node-only", text) == script("#SBATCH --nodes=2", "export A=1; srun torchrun --nnodes=2 train.py")
    assert "one-node-only" not in found(text.replace("--nodes=2", "--nodes=1", 1))
    assert "one-node-only" not in found(script("#SBATCH --nodes=2", "deepspeed --hostfile=hosts train.py"))
    assert "one-node-only" not in found(script("#SBATCH --nodes=2", "srun torchrun --nnodes=2 train.py"))
    asked = script("#SBATCH --nodes=2", "HEAD=$(srun -N1 -n1 hostname -I)", "torchrun --nnodes=2 train.py")
    assert found(asked)["one-node-only"] == 5  # this srun starts nothing of the training


@pytest.mark.parametrize(
    "line",
    [
        "export MASTER_PORT=29500",
        "torchrun --master_port 29500 a.py",
        'torchrun --rdzv_endpoint="$MASTER_ADDR:29500" a.py',
        "srun ray start --head --port=29500 --block",
    ],
)
def test_fixed_port_becomes_one_of_the_job(line: str) -> None:
    text = script("#SBATCH --gpus=1", line)
    assert found(text)["fixed-port"] == 4
    better = fixed("fixed-port", text)
    assert "29500" not in better
    shell = f"SLURM_JOB_ID=70123; torchrun() {{ echo $*; }}; srun() {{ echo $*; }}\n{better.splitlines()[-1]}\necho $MASTER_PORT"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=20, check=True)
    assert "30123" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "export MASTER_PORT=$PORT", "torchrun --rdzv-endpoint=localhost:0 a.py", "# MASTER_PORT=29500",
        "export SPARK_MASTER_PORT=7077", "MASTER_PORT=2950$SLURM_ARRAY_TASK_ID", "MASTER_PORT=29${N}", "echo MASTER_PORT=29500",
    ],
)  # fmt: skip
def test_port_that_is_not_fixed(line: str) -> None:
    assert "fixed-port" not in found(script(line))


@pytest.mark.parametrize(
    "line", ["--exclusive", "--exclusive=user", "--mem=0", "--gres=gpu:8", "--gpus-per-node=h100:8"]
)
def test_port_of_a_job_that_has_its_nodes_alone(line: str) -> None:
    assert "fixed-port" not in found(script(f"#SBATCH {line}", "export MASTER_PORT=29500"))


def test_port_that_stands_elsewhere_too_is_left_alone() -> None:
    text = script("export MASTER_PORT=29500", "python train.py --dist-url tcp://$HOST:29500")
    assert found(text)["fixed-port"] == 3
    assert fixed("fixed-port", text) == text


def test_program_in_the_background_is_waited_for() -> None:
    text = script("python a.py &", "python b.py > out 2>&1 &")
    assert found(text)["no-wait"] == 4
    assert fixed("no-wait", text) == text + "wait\n"
    assert "no-wait" not in found(script("python a.py > out 2>&1"))
    assert "no-wait" not in found(script("monitor &", "srun python train.py"))  # ends with the training
    assert "no-wait" not in found(script("monitor $$ &", "module load x", "python train.py", "echo done"))
    assert "no-wait" not in found(script("srun server &", "while ! curl x; do", "  sleep 60", "done", "curl y"))
    assert found(script("python a.py &", "echo started"))["no-wait"] == 3


def test_last_echo_hides_the_exit_code() -> None:
    text = script("python \\", "  train.py", "", "echo done")
    assert found(text)["exit-code-lost"] == 6
    better = script("python \\", "  train.py", "exit_code=$?", "", "echo done", "exit $exit_code")
    assert fixed("exit-code-lost", text) == better
    done = subprocess.run(
        ["bash", "-c", f"python() {{ return 3; }}\n{better}"], stdout=subprocess.PIPE, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (3, b"done\n")
    assert found(script("python train.py", "  ", "echo done"))["exit-code-lost"] == 5
    assert "exit-code-lost" not in found(script("echo start", "python train.py"))


@pytest.mark.parametrize(
    "lines",
    [
        ("python train.py", "status=$?", "echo done", "exit $status"),
        ("python train.py || exit 1", "echo done"),
        ("trap report ERR", "python train.py", "echo done"),
        ("set -e", "python train.py", "echo done"),
        ("for x in 1 2; do", "  python train.py", "  echo done", "done"),
        ("if [[ -e x ]]; then", "  echo yes", "else", "  echo no", "fi"),
        ("module load x", "cp a b", "echo done"),
    ],
)
def test_exit_code_that_counts_or_is_of_no_training(lines: tuple[str, ...]) -> None:
    assert "exit-code-lost" not in found(script(*lines))


def test_tee_hides_the_exit_code() -> None:
    text = script("set -e", "srun torchrun \\", "  train.py 2>&1 | tee log")
    finding = finding_of("exit-code-lost", text)
    assert (finding.line, finding.message) == (4, "The job is COMPLETED also if torchrun fails.")
    better = script("set -e", "set -o pipefail", "srun torchrun \\", "  train.py 2>&1 | tee log")
    assert fixed("exit-code-lost", text) == better
    assert "exit-code-lost" not in found(script("set -euo pipefail", "srun torchrun train.py | tee log"))
    assert "exit-code-lost" not in found(script("srun torchrun train.py | tee log", "exit ${PIPESTATUS[0]}"))


def test_conda_needs_its_functions() -> None:
    text = script("conda activate llm", "python train.py")
    assert found(text)["conda-activate"] == 3
    assert "conda-activate" not in found(fixed("conda-activate", text))


@pytest.mark.parametrize(
    "line",
    [
        "source ~/miniconda3/etc/profile.d/conda.sh", "source ~/miniconda3/bin/activate", "source ~/start-prod",
        'eval "$(conda shell.bash hook)"', "module load anaconda3/2024.2", "ml miniforge", ". ~/.bashrc",
    ],
)  # fmt: skip
def test_conda_that_may_have_its_functions(line: str) -> None:
    assert "conda-activate" not in found(script(line, "conda activate llm"))
    assert "conda-activate" not in found("#!/bin/bash -el\nconda activate llm\n")
    assert found(script("module load cuda", "conda activate llm", line))["conda-activate"] == 4


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ('cd "$(dirname "$0")/.."', "$0"), ("ROOT=$(dirname $(realpath $0))", "$0"), ("cd ${0%/*}", "$0"),
        ('HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"', "$BASH_SOURCE"),
    ],
)  # fmt: skip
def test_folder_of_the_script_is_not_the_folder_of_its_copy(line: str, path: str) -> None:
    finding = finding_of("script-path", script(line, "python train.py"))
    assert (finding.line, finding.message) == (3, f"{path} is not the path of the submitted file.")


@pytest.mark.parametrize(
    "lines",
    [
        ('HERE="${SLURM_SUBMIT_DIR:-$(dirname "$0")}"',),
        ('HERE="$(dirname "$0")"', '[[ $HERE == *slurmd* ]] && HERE=$SLURM_SUBMIT_DIR'),
        ('echo "usage: $0 CONFIG"',),
        ("cd $(dirname $CONFIG)",),
    ],
)  # fmt: skip
def test_script_that_knows_of_its_copy(lines: tuple[str, ...]) -> None:
    assert "script-path" not in found(script(*lines))
    assert "script-path" not in found('#!/bin/bash\ncd "$(dirname "$0")"\nsbatch train.sbatch\n')


@pytest.mark.parametrize(
    "line", ["ray stop", "srun --overlap /scratch/me/ray/bin/ray stop --force", "ray symmetric-run -- a.py"]
)
def test_commands_that_end_every_ray_of_a_node(line: str) -> None:
    assert found(script(line))["every-ray"] == 3
    assert "every-ray" not in found(script("srun ray start --head --block", "python stop.py"))
