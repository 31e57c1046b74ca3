"""JobSet and RayJob of a Slurm script."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headway.convert.conversion import Converted, convert_file
from headway.convert.formats import Target
from headway.errors import InvalidSpec
from tests.support.kubernetes_schemas import schema_faults

IMAGE = "example.org/train:1"


def convert(*lines: str, target: Target = Target.JOBSET, image: str = IMAGE) -> Converted:
    text = "".join(f"{line}\n" for line in ("#!/bin/bash", *lines))
    converted = convert_file(text.encode(), target=target, image=image)
    assert schema_faults(converted.text) == []
    return converted


def pods(converted: Converted) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(converted.text)["spec"]["replicatedJobs"][0]["template"]["spec"]
    return found


def container(converted: Converted) -> dict[str, Any]:
    found: dict[str, Any] = pods(converted)["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        ("--gpus-per-node=h100:8", {"nvidia.com/gpu": "8"}),
        ("--gres=gpu:a100:4 --ntasks-per-node=4 --cpus-per-task=8", {"nvidia.com/gpu": "4", "cpu": "32"}),
        ("--nodes=2 --gpus=16", {"nvidia.com/gpu": "8"}),
        ("--ntasks=2 --mem-per-cpu=2G --cpus-per-task=2", {"cpu": "4", "memory": "8Gi"}),
        ("--gpus-per-node=2 --mem-per-gpu=1500M", {"nvidia.com/gpu": "2", "memory": "3000Mi"}),
    ],
)
def test_resources(options: str, resources: dict[str, str]) -> None:
    assert container(convert(f"#SBATCH {options}", "true"))["resources"] == {"requests": resources, "limits": resources}


def test_nodes_are_pods_that_run_the_script_without_srun() -> None:
    converted = convert(
        "#SBATCH -N 4 --time=01:00:00 --job-name=My_Job",
        'addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "srun -N 4 --ntasks-per-node 1 torchrun --node-rank=$SLURM_NODEID $$ train.py",
    )
    assert (pods(converted)["parallelism"], pods(converted)["completions"]) == (4, 4)
    assert pods(converted)["activeDeadlineSeconds"] == 3600
    script = container(converted)["command"][2]
    assert 'echo "my-job-main-0-$index.my-job"' in script
    assert "\ntorchrun --node-rank=$SLURM_NODEID $$$$ train.py" in script  # Kubernetes reads $$ as $
    assert "addr=$$(scontrol" in script
    assert "export SLURM_NODEID=${JOB_COMPLETION_INDEX:-0}" in script
    assert [loss.text for loss in converted.losses] == [
        "--job-name=My_Job", "scontrol show hostnames", "srun -N 4 --ntasks-per-node 1",
    ]  # fmt: skip


def test_array_becomes_completions() -> None:
    converted = convert("#SBATCH --array=1-10%3", "echo $SLURM_ARRAY_TASK_ID")
    assert (pods(converted)["parallelism"], pods(converted)["completions"]) == (3, 10)
    assert "export SLURM_ARRAY_TASK_ID=$$((JOB_COMPLETION_INDEX + 1))" in container(converted)["command"][2]
    assert "1,5" in str(convert("#SBATCH --array=1,5", "true").losses)


def test_options_without_counterpart_are_lost_with_a_remedy() -> None:
    converted = convert("#SBATCH -p gpu -A team --dependency=afterok:3 --mail-type=END --licenses=x", "true")
    assert [(loss.text, loss.outcome) for loss in converted.losses] == [
        (text, "lost") for text in ("-p gpu", "-A team", "--dependency=afterok:3", "--mail-type=END", "--licenses=x")
    ]
    assert "Kueue" in converted.losses[0].why


def test_image_is_needed() -> None:
    with pytest.raises(InvalidSpec, match="--image IMAGE"):
        convert("#SBATCH -N 1", "true", image="")
    with_image = convert('#SBATCH --container-image="nvcr.io#nvidia/pytorch:25.05"', "true", image="")
    assert container(with_image)["image"] == "nvcr.io/nvidia/pytorch:25.05"


def test_rayjob_keeps_only_the_program_of_a_script_that_starts_ray() -> None:
    converted = convert(
        "#SBATCH --nodes=3 --gpus-per-node=8", "srun --nodes=1 -w $head ray start --head --block &", "sleep 10",
        "srun ray start --address=$head:6379 --block &", "python -u tune.py \\", "    --trials 20",
        target=Target.RAYJOB,
    )  # fmt: skip
    spec = yaml.safe_load(converted.text)["spec"]
    assert spec["entrypoint"] == "python -u tune.py --trials 20"
    assert spec["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 2
    assert [loss.where for loss in converted.losses if loss.outcome == "lost"] == ["line 3", "line 4", "line 5"]


def test_lines_that_a_reader_adds_also_run_in_pods() -> None:
    converted = convert("#PBS -l nodes=2:ppn=4", "mpirun -machinefile $PBS_NODEFILE ./a.out")
    script = container(converted)["command"][2]
    assert script.index("scontrol() {") < script.index('scontrol show hostnames "$SLURM_JOB_NODELIST"')


def test_values_of_variables_stay_as_they_are() -> None:
    """Kubernetes reads $(NAME) in the value of a variable, and $$ as $."""
    converted = convert('#SBATCH --export="DIR=/a,LOG=$(DIR)/x,PRICE=5$$,PLAIN=$DIR"', "./a.out")
    values = {one["name"]: one["value"] for one in container(converted)["env"]}
    assert values == {"DIR": "/a", "LOG": "$$(DIR)/x", "PRICE": "5$$$$", "PLAIN": "$DIR"}
