"""`headway run` and its launchers start the right programs on the right nodes with the right files, on a real
cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a working folder that contains the examples."""
    made = tmp_path_factory.mktemp("work") / "project"
    shutil.copytree(EXAMPLES, made)
    (made / ".gitignore").write_text("*.log\n")
    (made / "big.log").write_text("not sent")
    return made


def run(lab: Lab, folder: Path, *words: str, **env: str) -> int:
    done = lab.cli("run", "lab", "--folder", str(folder), "-o", "json", *words, **env)
    return int(json.loads(done.out)["job_id"])


def finished(lab: Lab, job: int) -> str:
    """Waits until the job has completed, and returns its output. Raises AssertionError if it did not end well."""
    state = lab.wait_job(job, patience_s=240)
    output = lab.cli("logs", "lab", str(job)).out
    assert state == "COMPLETED", output
    return output


def test_torchrun_trains_on_two_nodes_in_a_copy_of_the_folder(lab: Lab, folder: Path) -> None:
    job = run(lab, folder, "--nodes", "2", "--gpus", "8", "--", "torchrun", "train_ddp.py", "--steps", "4")
    output = finished(lab, job)
    assert "2 ranks" in output
    work = lab.client.jobs.get("lab", job).workdir
    there = lab.head("ls", "-A", work, user="admin").out.split()
    assert "train_ddp.py" in there
    assert "checkpoints" in there
    assert "big.log" not in there
    again = lab.head("ls", "/scratch/admin/.headway/bundles", user="admin").out.split()
    run(lab, folder, "--sbatch", "--test-only", "--", "true")
    assert lab.head("ls", "/scratch/admin/.headway/bundles", user="admin").out.split() == again  # sent once


def test_fsdp_trains_on_two_nodes(lab: Lab, folder: Path) -> None:
    job = run(lab, folder, "--nodes", "2", "--gpus", "8", "--", "torchrun", "train_fsdp.py")
    assert "step" in finished(lab, job)


def test_srun_ranks_communicate_over_the_node_interface(lab: Lab, folder: Path) -> None:
    job = run(lab, folder, "--nodes", "2", "--tasks", "2", "--launcher", "srun", "--", "python3", "ranks.py")
    output = finished(lab, job)
    assert output.count("eth0: sum 10") == 4
    assert {f"rank {n} of 4" for n in range(4)} == {
        line.partition(" on ")[0] for line in output.splitlines() if " of 4 on " in line
    }


def test_hostfile_launcher_reaches_job_nodes_by_ssh(lab: Lab, folder: Path) -> None:
    job = run(lab, folder, "--nodes", "2", "--", "python3", "hostfile_launch.py", "python3", "ranks.py")
    assert finished(lab, job).count("sum 3") == 2


def test_ssh_between_nodes_joins_the_originating_job(lab: Lab) -> None:
    flags = ("run", "lab", "--no-files", "-o", "json", "--nodes", "2", "--sbatch=--nodelist=lab-1-1,lab-1-2")
    newer = json.loads(lab.cli(*flags, "--sbatch=--hold", "--", "sleep", "120").out)["job_id"]
    steps = [
        f"scontrol release {newer}",
        f'until [ "$(squeue -h -j {newer} -o %T)" = RUNNING ]; do sleep 0.2; done',
        "ssh lab-1-2 cat /proc/self/cgroup",
        f"scancel {newer}",
    ]
    older = json.loads(lab.cli(*flags, "--", "sh", "-c", "; ".join(steps)).out)["job_id"]
    output = finished(lab, older)
    assert f"job_{older}/step_extern" in output
    assert f"job_{newer}/" not in output


def test_ssh_between_nodes_is_refused_without_a_job_there(lab: Lab) -> None:
    done = lab.head("srun", "-w", "lab-1-1", "ssh", "lab-2-2", "true", user="carol", check=False)
    assert done.code != 0
    assert "no active jobs" in done.err + done.out


# Each rank writes its number into the memory of the next rank.
WINDOW = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, got = -1;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win_create(&got, sizeof got, sizeof got, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    printf("got%d\\n", got);
    MPI_Win_free(&window);
    return MPI_Finalize();
}
"""


@pytest.fixture(scope="module")
def allreduce(lab: Lab, folder: Path) -> str:
    """Returns the path of a compiled MPI program on scratch."""
    target = "/scratch/admin/allreduce"
    finished(lab, run(lab, folder, "--name", "build", "--", "mpicc", "-O2", "-o", target, "allreduce.c"))
    return target


def test_mpi_programs_run_with_srun_and_mpirun(lab: Lab, allreduce: str) -> None:
    flags = ("run", "lab", "--no-files", "--nodes", "2", "--tasks", "2", "-o", "json")
    by_srun = json.loads(lab.cli(*flags, "--launcher", "mpi", "--", allreduce).out)["job_id"]
    by_mpirun = json.loads(lab.cli(*flags, "--", "mpirun", allreduce).out)["job_id"]
    assert finished(lab, by_srun).count("sum 10") == 4
    assert finished(lab, by_mpirun).count("sum 10") == 4
    plain = lab.head("srun", "-N2", "--ntasks-per-node=1", allreduce, user="admin").out
    assert plain.count("sum 3") == 2
    window = "/scratch/admin/window"
    lab.head("tee", f"{window}.c", user="admin", stdin=WINDOW)
    lab.head("mpicc", "-o", window, f"{window}.c", user="admin")
    put = lab.head("srun", "-N2", "--ntasks-per-node=2", window, user="admin").out
    assert sorted(put.split()) == ["got0", "got1", "got2", "got3"]


# The share of a core, in hundredths, that a rank uses while it waits for a message of another rank.
WAITS = """
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, it = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        sleep(5);
        MPI_Send(&it, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    } else {
        double begun = MPI_Wtime();
        clock_t used = clock();
        MPI_Recv(&it, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("used %.0f\\n", 100.0 * (clock() - used) / CLOCKS_PER_SEC / (MPI_Wtime() - begun));
    }
    return MPI_Finalize();
}
"""


def test_waiting_mpi_rank_yields_its_core(lab: Lab) -> None:
    waits = "/scratch/admin/waits"
    lab.head("tee", f"{waits}.c", user="admin", stdin=WAITS)
    lab.head("mpicc", "-o", waits, f"{waits}.c", user="admin")
    by_srun = lab.head("srun", "-N2", "--ntasks-per-node=1", waits, user="admin").out
    by_mpirun = lab.head("salloc", "-N2", "--ntasks-per-node=1", "mpirun", waits, user="admin").out
    for said in (by_srun, by_mpirun):
        assert int(said.removeprefix("used ")) < 60, said


def test_later_edits_do_not_change_a_queued_job(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text("#!/bin/sh\necho first\n")
    job = run(lab, tmp_path, "--sbatch", "--hold", "--", "sh", "say.sh")
    (tmp_path / "say.sh").write_text("#!/bin/sh\necho second\n")
    later = run(lab, tmp_path, "--", "sh", "say.sh")
    lab.head("scontrol", "release", str(job), user="admin")
    assert "first" in finished(lab, job)
    assert "second" in finished(lab, later)


def test_dry_run_submits_nothing_and_prints_a_valid_script(lab: Lab, tmp_path: Path) -> None:
    before = lab.head("squeue", "-h", "-t", "all", "-o", "%i").out.split()
    done = lab.cli("run", "lab", "--folder", str(tmp_path), "--dry-run", "--nodes", "2", "--", "torchrun", "x.py")
    # The controller has meanwhile forgotten jobs that ended a while ago.
    assert set(lab.head("squeue", "-h", "-t", "all", "-o", "%i").out.split()) <= set(before)
    assert done.out.startswith("#!/bin/bash\n#SBATCH --job-name=x ")
    assert "# --nodes" in done.out
    checked = lab.head(
        "sbatch", "--test-only", user="admin", stdin=done.out.replace("/scratch/admin/runs", "/tmp"), check=False
    )
    assert "to start at" in checked.err + checked.out


def test_run_with_after_starts_once_the_first_job_succeeded(lab: Lab) -> None:
    flags = ("run", "lab", "--no-files", "-o", "json")
    first = json.loads(lab.cli(*flags, "--", "true").out)["job_id"]
    second = json.loads(lab.cli(*flags, "--after", f"ok:{first}", "--", "echo", "after").out)["job_id"]
    assert "after" in finished(lab, second)
    assert lab.state_of(first) == "COMPLETED"


def test_arguments_reach_the_program_unchanged(lab: Lab) -> None:
    words = ["a b", "$HOME", "`id`", "; true", "ü"]
    job = json.loads(lab.cli("run", "lab", "--no-files", "-o", "json", "--", "printf", "%s|", *words).out)["job_id"]
    assert "a b|$HOME|`id`|; true|ü|" in finished(lab, job)


def test_run_reports_all_faults_before_submitting(lab: Lab) -> None:
    done = lab.cli(
        "run", "lab", "--no-files", "--gpus", "9", "-p", "nosuch", "--time", "soon", "--", "true", check=False
    )
    assert done.code == 1
    assert "no node of lab has more than 8 GPUs" in done.err
    assert "it has train, debug, urgent" in done.err
    assert "--time" in done.err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["-A", "speech"], "admin is in default"),
        (["-p", "nosuch"], "lab has train, debug, urgent"),
        (["--gres=gpu:9"], "lab has 4 nodes of 8 GPUs"),
    ],
)
def test_sbatch_errors_include_hints(lab: Lab, flags: list[str], text: str) -> None:
    done = lab.cli("submit", "lab", *flags, "--wrap", "true", check=False)
    assert done.code == 1
    assert text in done.err


def test_submit_refuses_windows_line_endings(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "dos.sbatch").write_bytes(b"#!/bin/bash\r\ntrue\r\n")
    done = lab.cli("submit", "lab", str(tmp_path / "dos.sbatch"), check=False)
    assert "Windows line endings" in done.err


def test_failed_job_explains_why(lab: Lab) -> None:
    job = json.loads(lab.cli("run", "lab", "--no-files", "-o", "json", "--", "no-such-program").out)["job_id"]
    assert lab.wait_job(job) == "FAILED"
    lab.wait(lambda: "was not found" in lab.cli("job", "lab", str(job)).out, "Headway to have read its end")
    assert "no-such-program: No such file" in lab.cli("logs", "lab", str(job)).out


def test_shell_has_the_requested_gpus(lab: Lab) -> None:
    done = lab.cli("shell", "lab", "--gpus", "1", "--", "nvidia-smi", "-L")
    assert done.out.count("GPU 0:") == 1
    assert "GPU 1:" not in done.out
