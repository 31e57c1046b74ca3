"""The command line of a shell inside a running job."""

from __future__ import annotations

# An interactive bash ignores SIGTERM unless it has a trap for it. Without one, a shell that is open when its job ends keeps the
# job's nodes until Slurm kills it, by default half a minute later.
_ENDS_WITH_ITS_JOB = 'PROMPT_COMMAND=trap "exit 143" TERM; unset PROMPT_COMMAND'


def job_shell_argv(job: str, node: str = "") -> tuple[str, ...]:
    """Returns the command that opens a shell as a further step of a running job, with the job's CPUs, memory and GPUs, on one of
    its nodes (default: the first). `job`: the number, or ARRAY_TASK. It needs a terminal."""
    where = (f"--nodelist={node}",) if node else ()
    return (
        "srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", *where, "--job-name=terminal", "--pty",
        "env", _ENDS_WITH_ITS_JOB, "bash", "-l",
    )  # fmt: skip
