"""Scripts of PBS, LSF and Grid Engine: options, variables in the text, and what is lost."""

from __future__ import annotations

import pytest

from headway.convert.conversion import Converted, convert_file
from headway.convert.formats import Source


def convert(*lines: str, source: Source | None = None) -> Converted:
    return convert_file("".join(f"{line}\n" for line in lines).encode(), source=source)


def directives(converted: Converted) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in converted.text.split("\n") if line.startswith("#SBATCH")}


def outcomes(converted: Converted) -> dict[str, str]:
    return {loss.text: loss.outcome for loss in converted.losses}


def of_pbs(*options: str, body: str = "cd $PBS_O_WORKDIR") -> Converted:
    return convert("#!/bin/bash", *(f"#PBS {option}" for option in options), body, source=Source.PBS)


def of_lsf(*options: str, body: str = "true") -> Converted:
    return convert("#!/bin/bash", *(f"#BSUB {option}" for option in options), body, source=Source.LSF)


def of_sge(*options: str, body: str = "true") -> Converted:
    return convert("#!/bin/bash", *(f"#$ {option}" for option in options), body, source=Source.SGE)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("-N name", {"--job-name=name"}),
        ("-Nname", {"--job-name=name"}),
        ("-l walltime=36:00:00", {"--time=1-12:00:00"}),
        ("-l walltime=90", {"--time=00:01:30"}),
        ("-lwalltime=01:00:00", {"--time=01:00:00"}),
        ("-l nodes=2:ppn=8:gpus=4", {"--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=4"}),
        ("-l nodes=n1:ppn=2+n2:ppn=2", {"--nodes=2", "--ntasks-per-node=2", "--nodelist=n1,n2"}),
        ("-l nodes=1:bigmem", {"--nodes=1", "--ntasks-per-node=1", "--constraint=bigmem"}),
        ("-l select=3:ncpus=8:mpiprocs=2:mem=1gb",
         {"--nodes=3", "--ntasks-per-node=2", "--cpus-per-task=4", "--mem=1G"}),
        ("-l select=1:ncpus=2+2:ncpus=4", {"--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=4"}),
        ("-l pmem=500mb", {"--mem-per-cpu=500M"}),
        ("-J 1-10:2%3", {"--array=1-10:2%3"}),
        ("-t 5,7", {"--array=5,7"}),
        ("-o host:/logs/", {"--output=/logs/%x.o%j"}),
        ("-o $PBS_JOBNAME.$PBS_JOBID", {"--output=%x.%j"}),
        ("-m bea", {"--mail-type=BEGIN,END,FAIL"}),
        ("-r n", {"--no-requeue"}),
        ("-l place=excl", {"--exclusive"}),
        ("-a 2230", {"--begin=22:30"}),
        ("-h", {"--hold"}),
    ],
)  # fmt: skip
def test_options_of_pbs(option: str, expected: set[str]) -> None:
    assert directives(of_pbs(option, body="mpirun ./a.out")) == expected


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("-J run[1-5]%2", {"--job-name=run", "--array=1-5%2"}),
        ("-W 26:10", {"--time=1-02:10:00"}),
        ("-W 90", {"--time=01:30:00"}),
        ('-n 8 -R "span[ptile=4]"', {"--ntasks=8", "--ntasks-per-node=4", "--nodes=2"}),
        ('-R "rusage[mem=4000]"', {"--mem=4000M"}),
        ('-R "rusage[mem=4]"', {"--mem=4G"}),
        ('-R "rusage[mem=2GB]"', {"--mem=2G"}),
        ('-gpu "num=2:mode=exclusive_process"', {"--gpus-per-node=2"}),
        ("-oo out.%J.%I", {"--output=out.%j.%a", "--open-mode=truncate"}),
        ("-B -N -u me@site", {"--mail-type=BEGIN,END", "--mail-user=me@site"}),
        ("-x", {"--exclusive"}),
        ("-P proj", {"--account=proj"}),
        ("-nnodes 4", {"--nodes=4"}),
    ],
)
def test_options_of_lsf(option: str, expected: set[str]) -> None:
    assert directives(of_lsf(option, body="mpirun ./a.out")) == expected


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("-pe smp 8", {"--nodes=1", "--cpus-per-task=8"}),
        ("-pe mpi 16-32", {"--ntasks=16"}),
        ("-l h_rt=1:00:00,h_vmem=4G", {"--time=01:00:00", "--mem-per-cpu=4G"}),
        ("-l gpu=2", {"--gpus-per-node=2"}),
        ("-t 1-9:2 -tc 3", {"--array=1-9:2%3"}),
        ("-t 5", {"--array=1-5"}),
        ("-o logs/$JOB_NAME.$JOB_ID.$TASK_ID", {"--output=logs/%x.%j.%a"}),
        ("-q gpu.q@n1,gpu.q@n2", {"--partition=gpu.q"}),
        ("-j y -cwd -V", set()),
        ("-P proj", {"--account=proj"}),
    ],
)
def test_options_of_grid_engine(option: str, expected: set[str]) -> None:
    assert directives(of_sge(option)) == expected


def test_variables_become_those_of_slurm() -> None:
    text = of_pbs("-l nodes=2:ppn=4", body='echo ${PBS_JOBID%%.*} $((PBS_ARRAY_INDEX - 1)) "$PBS_NP"').text
    assert 'echo ${SLURM_JOB_ID%%.*} $((SLURM_ARRAY_TASK_ID - 1)) "$SLURM_NTASKS"' in text
    assert "$SLURM_CPUS_PER_TASK" in of_sge("-pe smp 4", body="run -t $NSLOTS").text
    assert "$SLURM_NTASKS" in of_sge("-pe mpi 4", body="mpirun -n $NSLOTS run").text


def test_variable_without_counterpart_is_in_the_losses_with_its_line() -> None:
    lost = [loss for loss in of_lsf("-n 2", body="cat $LSB_AFFINITY_HOSTFILE").losses if loss.outcome == "lost"]
    assert [(loss.where, loss.text) for loss in lost] == [("line 3", "LSB_AFFINITY_HOSTFILE")]


def test_variable_that_the_script_sets_itself_stays() -> None:
    converted = of_pbs("-N a", body="PBS_JOBNUM=$(echo $PBS_JOBID); cd $PBS_O_WORKDIR; echo $PBS_JOBNUM")
    assert "echo $PBS_JOBNUM" in converted.text
    assert converted.losses == ()


def test_node_file_has_a_line_for_each_task() -> None:
    text = of_pbs("-l nodes=2:ppn=3", body="mpirun -machinefile $PBS_NODEFILE a").text
    assert "i < 3" in text
    assert "mpirun -machinefile $PBS_NODEFILE a" in text


def test_jobs_start_where_they_did_before() -> None:
    assert 'cd "$HOME"' not in of_pbs("-N a").text
    assert 'cd "$HOME"' in of_pbs("-N a", body="true").text
    assert 'cd "$HOME"' in of_sge("-N a").text
    assert 'cd "$HOME"' not in of_sge("-cwd").text
    assert 'cd "$HOME"' not in of_lsf("-n 1").text


def test_cores_of_a_program_that_starts_no_tasks_are_cpus() -> None:
    threads = of_lsf('-n 8 -R "span[hosts=1]"', body="python train.py")
    assert directives(threads) == {"--nodes=1", "--cpus-per-task=8"}
    tasks = of_lsf('-n 8 -R "span[hosts=1]"', body="mpirun ./a.out")
    assert directives(tasks) == {"--nodes=1", "--ntasks=8"}


def test_shell_of_a_directive_takes_precedence() -> None:
    assert of_sge("-S /bin/zsh -cwd").text.startswith("#!/bin/zsh\n")
    assert convert("#PBS -S /bin/ksh", "cd $PBS_O_WORKDIR").text.startswith("#!/bin/ksh\n")


def test_lines_of_bash_are_not_written_into_a_script_of_another_shell() -> None:
    converted = convert("#!/bin/csh", "#PBS -l nodes=1:ppn=2", "cat $PBS_NODEFILE")
    assert "mktemp" not in converted.text
    assert any("mktemp" in loss.why for loss in converted.losses)


def test_secret_is_named_and_not_copied() -> None:
    converted = of_pbs("-v HF_TOKEN=hf_abcdefgh,STEPS=3", body="export WANDB_API_KEY=0123456789")
    assert "hf_abcdefgh" not in converted.text
    assert "0123456789" not in converted.text
    assert "export STEPS=3" in converted.text
    assert {loss.text for loss in converted.losses if "headway secret set" in loss.remedy} == {
        "HF_TOKEN",
        "WANDB_API_KEY",
    }


def test_losses_have_line_reason_and_remedy() -> None:
    converted = of_pbs("-W depend=afterok:12,umask=022", "-I", "-l software=abaqus", "--nonsense")
    found = outcomes(converted)
    assert found == {
        "-W depend=afterok:12": "lost", "-W umask=022": "lost", "-I": "lost", "-l software=abaqus": "lost", "--nonsense": "lost",
    }  # fmt: skip
    assert converted.losses[0].where == "line 2"
    assert "--dependency=afterok:JOB" in converted.losses[0].remedy


def test_option_that_is_given_twice_is_lost_once() -> None:
    converted = of_pbs("-N one", "-N two")
    assert directives(converted) == {"--job-name=two"}
    assert [(loss.where, loss.outcome) for loss in converted.losses] == [("line 2", "lost")]


def test_directives_after_the_first_command() -> None:
    late = convert("#!/bin/bash", "#PBS -N a", "cd $PBS_O_WORKDIR", "#PBS -q late")
    assert [(loss.where, loss.outcome) for loss in late.losses] == [("line 4", "same")]
    assert "--partition=late" in directives(convert("#!/bin/bash", "true", "#BSUB -q late"))


def test_lines_of_another_scheduler_are_lost() -> None:
    converted = convert("#!/bin/bash", "#PBS -N a", "#SBATCH --nodes=4", "cd $PBS_O_WORKDIR", source=Source.PBS)
    assert directives(converted) == {"--job-name=a"}
    assert [(loss.where, loss.outcome) for loss in converted.losses] == [("line 3", "lost")]


def test_commands_of_the_scheduler_are_named() -> None:
    converted = of_pbs("-N a", body="cd $PBS_O_WORKDIR; qsub next.pbs")
    assert [(loss.where, loss.text) for loss in converted.losses] == [("line 3", "qsub")]


def test_windows_line_ends_become_those_of_linux() -> None:
    converted = convert_file(b"#!/bin/bash\r\n#BSUB -J a\r\ntrue\r\n")
    assert "\r" not in converted.text
    assert converted.losses[0].outcome == "changed"


def test_image_of_the_command_line_is_that_of_the_script() -> None:
    converted = convert_file(b"#!/bin/bash\n#BSUB -J a\ntrue\n", image="nvcr.io/nvidia/pytorch:25.05")
    assert '#SBATCH --container-image="nvcr.io#nvidia/pytorch:25.05"\n' in converted.text


def test_variable_with_a_default_of_the_script_gets_the_value_of_slurm() -> None:
    text = of_sge("-cwd", body='if [ -z "$SGE_TASK_ID" ]; then SGE_TASK_ID=0; fi; run $SGE_TASK_ID').text
    assert 'export SGE_TASK_ID="${SLURM_ARRAY_TASK_ID:-}"\n' in text
    assert text.endswith("run $SGE_TASK_ID\n")


def test_variables_in_directives_are_lost() -> None:
    converted = of_sge("-N $RUN", "-o ${LOGS}/a.log", "-cwd")
    assert directives(converted) == set()
    assert [loss.where for loss in converted.losses if loss.outcome == "lost"] == ["line 2", "line 3"]
