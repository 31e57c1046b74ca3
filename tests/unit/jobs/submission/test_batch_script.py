"""`headway run` generates the right batch script."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from headway.errors import Refused
from headway.jobs.submission.batch_script import Script, StepProgram, dependency, job_name, run_script
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.submission.run_request import ContainerIn, RunIn
from tests.support.clusters.builders import cluster

LAB = cluster(4)
PLACE = user_folders(LAB, "alice")
WORK = PLACE.job_folder("train", "1")


def make(*argv: str, **fields: Any) -> Script:
    return run_script(RunIn(argv=list(argv), **fields), LAB, PLACE, WORK, PLACE.helper_path("ab" * 32))


def lines(script: Script) -> list[str]:
    return [line.text for line in script.lines]


def test_script_adds_missing_torchrun_options() -> None:
    script = make("torchrun", "train.py", "--steps", "5", nodes=4, gpus=8)
    assert (script.name, script.launcher, script.args) == ("train", "torchrun", ("train.py", "--steps", "5"))
    text = script.text()
    assert "#SBATCH --nodes=4 " in text
    assert "#SBATCH --gpus-per-node=8 " in text
    assert "#SBATCH --ntasks-per-node=1 " in text
    for option in (
        "--nnodes=",
        "--nproc-per-node=",
        "--rdzv-backend=c10d",
        '--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"',
    ):
        assert option in text


def test_script_runs_the_torchrun_of_the_python_that_the_user_names() -> None:
    venv = "/scratch/alice/venv/bin"
    script = make(f"{venv}/torchrun", "--nnodes=2", "train.py")
    assert script.args == (f"{venv}/torchrun", "--nnodes=2", "train.py")
    assert "torchrun=$1; shift" in script.text()
    assert 'quote "$torchrun" --nproc-per-node=' in script.text()
    assert make(f"{venv}/python", "-u", "train.py", launcher="torchrun").args == (f"{venv}/torchrun", "train.py")
    assert make("python3", "train.py", launcher="torchrun").args == ("train.py",)
    assert make(f"{venv}/python", "train.py").args == (f"{venv}/python", "train.py")


def test_script_keeps_torchrun_options_of_the_user() -> None:
    text = make("torchrun", "--nproc_per_node", "2", "--rdzv-id=x", "train.py", "--nnodes", "9").text()
    assert "--nproc-per-node=" not in text
    assert "--rdzv-id=" not in text
    assert "--nnodes=" in text  # the script's own word of that name is not torchrun's
    assert "--nnodes=" not in make("torchrun", "--standalone", "train.py").text()


def test_every_sbatch_line_names_its_origin() -> None:
    script = make("torchrun", "train.py", nodes=2, gpus=8, time="1:00:00", after=["ok:12"], partition="train")
    origins = {line.text.split("=")[0]: line.origin for line in script.lines if line.text.startswith("#SBATCH")}
    assert all(origins.values())
    assert origins["#SBATCH --time"] == "--time"
    assert origins["#SBATCH --dependency"] == "--after"


def test_array_tasks_get_separate_checkpoint_folders() -> None:
    (export,) = (line for line in lines(make("python", "train.py")) if "export HEADWAY_CHECKPOINT_DIR=" in line)

    def said(**env: str) -> str:
        argv = ["bash", "-uc", f'{export}; echo "$HEADWAY_CHECKPOINT_DIR"']
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    assert said() == f"{WORK}/checkpoints"
    assert said(SLURM_ARRAY_TASK_ID="0") == f"{WORK}/checkpoints/0"
    assert said(SLURM_ARRAY_TASK_ID="7", HEADWAY_CHECKPOINT_DIR="/scratch/a") == "/scratch/a/7"
    assert said(HEADWAY_CHECKPOINT_DIR="/scratch/a") == "/scratch/a"


def test_warn_stages_a_program_that_passes_the_signal_to_the_ranks() -> None:
    run = RunIn(argv=["torchrun", "train.py"], nodes=2, gpus=8, warn=True)
    prepared = prepare_run(run, LAB, "alice", "1")
    assert prepared.stage
    assert prepared.script
    (warner,) = (path for path in prepared.stage.files if "/warn-" in path)
    assert "passes Slurm's warning signal on to the ranks" in prepared.stage.files[warner]
    assert warner.startswith(PLACE.root), "which containers of a run have"
    text = prepared.script.text()
    assert "#SBATCH --signal=USR1@120 " in text
    assert f"warner={warner} " in text
    assert 'quote python3 "$warner" torchrun --nnodes=' in text


def test_warn_starts_the_program_as_srun_step_and_refuses_mpirun() -> None:
    text = make("python", "train.py", gpus=1, warn=True).text()
    assert 'HEADWAY_COMMAND=$(python3 "$helper" quote "$@") ' in text
    assert 'srun --kill-on-bad-exit=1 --nodes=1 --ntasks=1 python3 "$helper" task ' in text
    with pytest.raises(Refused, match="does not reach the ranks that mpirun starts"):
        make("mpirun", "./solve", warn=True)


@pytest.mark.parametrize("argv", [["python3", "a.py"], ["mpirun", "a"]])
def test_step_of_a_pipeline_records_its_outputs_and_gets_sigterm(argv: list[str]) -> None:
    step = StepProgram("/s/step.py", "/s/plan.json", "train")
    script = run_script(RunIn(argv=argv), LAB, PLACE, WORK, PLACE.helper_path("ab" * 32), step=step)
    assert lines(script)[-1] == 'exec python3 "$helper" run python3 "$step" end "$plan" train -- "$@"'


def test_arguments_of_steps_do_not_contain_the_command() -> None:
    """Slurm's accounting shows the arguments of srun to all users."""
    for script in (
        make("torchrun", "train.py", nodes=2, gpus=8),
        make("./a.out", launcher="srun", nodes=2),
        make("python3", "x.py", container=ContainerIn(image="docker://a")),
    ):
        (step,) = [line for line in lines(script) if line.startswith("srun")]
        assert "torchrun" not in step
        assert " -- " not in step.partition("exec python3")[0]


def test_too_long_command_is_refused() -> None:
    make("./a.out", "x" * 99_000)
    with pytest.raises(Refused, match="more than 100000 bytes"):
        make("./a.out", *["x" * 1000] * 100)


def test_script_without_warn_stages_no_warner() -> None:
    prepared = prepare_run(RunIn(argv=["torchrun", "train.py"], gpus=8), LAB, "alice", "1")
    assert prepared.stage
    assert prepared.script
    assert [path.rpartition("/")[2].split("-")[0] for path in prepared.stage.files] == ["launch"]
    assert "warner" not in prepared.script.text()


def test_srun_launcher_starts_one_task_per_gpu_and_python_one_process() -> None:
    assert "#SBATCH --ntasks-per-node=8" in lines(make("./a.out", launcher="srun", nodes=2, gpus=8))
    python = make("python3", "train.py", gpus=2)
    assert python.launcher == "python"
    assert not any(line.startswith("srun") for line in lines(python))
    assert lines(python)[-1] == 'exec python3 "$helper" run -- "$@"'


def test_ray_launcher_starts_one_ray_of_all_nodes() -> None:
    prepared = prepare_run(
        RunIn(argv=["python", "tune.py"], launcher="ray", nodes=4, gpus=8, warn=True), LAB, "alice", "1"
    )
    assert prepared.stage
    assert prepared.script
    (ray,) = (path for path in prepared.stage.files if "/ray-" in path)
    assert "--launcher ray" in prepared.stage.files[ray]
    text = prepared.script.text()
    assert f"ray={ray} " in text
    assert "#SBATCH --ntasks-per-node=1 " in text
    assert "#SBATCH --no-kill " in text
    assert 'exec python3 "$ray" job "$helper" ' in text
    assert '$helper" end' not in text, "its own program waits for a requeue"
    assert "--no-kill" not in make("python", "tune.py", launcher="ray").text(), "one node: nothing is left without it"
    inside = make("python", "tune.py", launcher="ray", container=ContainerIn(image="docker://a"))
    assert 'job "$helper" "${container[@]}" ' in inside.text()
    with pytest.raises(Refused, match="Ray starts its own workers"):
        make("python", "tune.py", launcher="ray", tasks=4)


def test_mpi_launcher_uses_srun_and_mpirun_starts_directly() -> None:
    (started,) = [line for line in lines(make("./allreduce", launcher="mpi", tasks=2)) if line.startswith("srun")]
    assert "--mpi" not in started, "MpiDefault says it"
    mpirun = make("mpirun", "./allreduce", nodes=2, tasks=2)
    assert mpirun.launcher == "mpi"
    assert not any(line.startswith("srun") for line in lines(mpirun))


def test_mpi_launcher_requires_mpirun_if_srun_lacks_pmix() -> None:
    newer = replace(LAB, image="debian14", slurm_version="26.05")
    with pytest.raises(Refused, match="start them with mpirun"):
        run_script(RunIn(argv=["./allreduce"], launcher="mpi"), newer, PLACE, WORK, PLACE.helper_path("ab" * 32))
    run_script(RunIn(argv=["mpirun", "./allreduce"]), newer, PLACE, WORK, PLACE.helper_path("ab" * 32))


def test_container_flags_are_arguments_before_the_command() -> None:
    container = ContainerIn(image="docker://a b", mounts=["/datasets:/d:ro"], mount_home=False)
    script = make("python3", "x.py", container=container)
    assert script.args[: script.flags] == (
        "--container-image=docker://a b",
        "--container-mounts=/scratch/alice:/scratch/alice:rw,/datasets:/d:ro",
        f"--container-workdir={WORK}",
        "--no-container-mount-home",
    )
    assert "docker://" not in script.text()
    assert any(line.startswith("srun --kill-on-bad-exit=1 --nodes=1") for line in lines(script))


@pytest.mark.parametrize("launcher", ["torchrun", "srun", "mpi", "ray", "python"])
@pytest.mark.parametrize("container", [None, ContainerIn(image="a")])
def test_script_is_valid_bash_and_never_executes_user_words(launcher: Any, container: Any) -> None:
    script = make("$(touch x)", "; id", launcher=launcher, container=container)
    assert "$(touch" not in script.text()
    assert "; id" not in script.text()
    done = subprocess.run(["bash", "-n"], input=script.text(), text=True, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_reports_all_faults_at_once() -> None:
    with pytest.raises(Refused) as caught:
        make("x", name="a b", time="soon", after=["ok"], gpus=9, nodes=99, team="nobody", env={"a-b": "1"})
    for part in ("--name", "--time", "--after", "--gpus", "--nodes", "--team", "--env"):
        assert f"  {part}: " in caught.value.message
    assert "no node of lab has more than 8 GPUs" in caught.value.message


def test_unknown_partition_error_names_the_existing_ones() -> None:
    with pytest.raises(Refused, match="it has "):
        make("x", partition="no")


def test_after_conditions_become_slurm_dependencies() -> None:
    assert dependency(["ok:1", "notok:2", "any:3_4", "start:5"]) == "afterok:1,afternotok:2,afterany:3_4,after:5"
    with pytest.raises(Refused, match="not a condition"):
        dependency(["afterok:1"])


@pytest.mark.parametrize(
    ("argv", "name"),
    [(["torchrun", "a/train.v2.py"], "train.v2"), (["./run me"], "run-me"), (["..."], "run"), (["-x"], "run")],
)
def test_job_name_defaults_to_the_program_or_script_name(argv: list[str], name: str) -> None:
    assert job_name(RunIn(argv=argv)) == name
