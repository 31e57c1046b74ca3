"""Variables that fight Slurm or the fabric are found."""

from __future__ import annotations

import pytest

from tests.support.batch_scripts import fixed, found, script


@pytest.mark.parametrize(
    ("line", "rule", "better"),
    [
        ("export CUDA_VISIBLE_DEVICES=0,1", "cuda-visible-devices", None),
        ("export NCCL_IB_DISABLE=1", "slow-nccl", None),
        ("NCCL_P2P_DISABLE=1 srun python a.py", "slow-nccl", "NCCL_P2P_DISABLE=1 srun python a.py"),
        ("export NCCL_SOCKET_IFNAME=eth0", "fixed-interface", "export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-eth0}"),
        ("export NCCL_DEBUG=INFO", "verbose-nccl", "export NCCL_DEBUG=WARN"),
        ('export NCCL_DEBUG="INFO"', "verbose-nccl", "export NCCL_DEBUG=WARN"),
    ],
)
def test_variable_is_found_and_corrected(line: str, rule: str, better: str | None) -> None:
    assert found(script(line, "srun hostname"))[rule] == 3
    expected = script("srun hostname") if better is None else script(better, "srun hostname")
    assert fixed(rule, script(line, "srun hostname")) == expected


@pytest.mark.parametrize(
    "line",
    [
        "export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-eth0}", "export NCCL_IB_DISABLE=0", "export NCCL_DEBUG=WARN",
        "# export CUDA_VISIBLE_DEVICES=0", "export NCCL_SOCKET_IFNAME=^lo,docker", 'echo "CUDA_VISIBLE_DEVICES=0"',
    ],
)  # fmt: skip
def test_variable_that_does_no_harm(line: str) -> None:
    assert not found(script(line)).keys() & {"fixed-interface", "slow-nccl", "verbose-nccl", "cuda-visible-devices"}


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH --gpus=2", "export CUDA_VISIBLE_DEVICES=1,0"),  # all of the job's GPUs
        ("export CUDA_VISIBLE_DEVICES=-1",),
        ("export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID",),
        ("CUDA_VISIBLE_DEVICES=0 python a.py &", "CUDA_VISIBLE_DEVICES=1 python b.py &", "wait"),
        ("CUDA_VISIBLE_DEVICES=0 python prepare.py", "python train.py"),
    ],
)
def test_devices_that_share_out_the_jobs_gpus(lines: tuple[str, ...]) -> None:
    assert "cuda-visible-devices" not in found(script(*lines))


def test_only_command_of_a_branch_is_not_deleted() -> None:
    text = script("if [ -e x ]; then", "  # slow", "  export NCCL_IB_DISABLE=1", "fi")
    assert found(text)["slow-nccl"] == 5
    assert fixed("slow-nccl", text) == text


def test_variable_of_an_option_that_the_script_does_not_give() -> None:
    text = script("#SBATCH --gres=gpu:4", "torchrun --nproc-per-node=$SLURM_GPUS_PER_NODE train.py")
    assert found(text)["unset-variable"] == 4
    better = script("#SBATCH --gres=gpu:4", "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py")
    assert fixed("unset-variable", text) == better
    tasks = script("#SBATCH --ntasks=8", "export WORLD=$((SLURM_NNODES * ${SLURM_NTASKS_PER_NODE}))")
    assert found(tasks)["unset-variable"] == 4


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH --gpus-per-node=4", "echo $SLURM_GPUS_PER_NODE"),
        ("echo $SLURM_GPUS_PER_NODE",),  # the option may be on the command line
        ("#SBATCH --gres=gpu:4", "echo ${SLURM_GPUS_PER_NODE:-4}"),
        ("#SBATCH --gres=gpu:4", "SLURM_GPUS_PER_NODE=4", "echo $SLURM_GPUS_PER_NODE"),
        ("#SBATCH --gres=gpu:4", "# $SLURM_GPUS_PER_NODE"),
        ("#SBATCH --gres=shard:4", "echo $SLURM_GPUS_PER_NODE"),
        ("#SBATCH --ntasks=8", "srun --ntasks-per-node=4 bash -c 'echo $SLURM_NTASKS_PER_NODE'"),
    ],
)
def test_variable_that_may_be_set(lines: tuple[str, ...]) -> None:
    assert "unset-variable" not in found(script(*lines))
