"""Paths on machines that several rendered files use, and the command of the agent."""

from __future__ import annotations

AGENT_PROGRAM = "/usr/lib/headway/agent.pyz"
AGENT_COMMAND = f"/usr/bin/python3 -I -S {AGENT_PROGRAM}"  # isolated: no packages or settings of users
JWT_KEY = "/etc/slurm/jwt_hs256.key"
PROLOG = "/etc/headway/prolog"
EPILOG = "/etc/headway/epilog"
TASK_PROLOG = "/etc/headway/task-prolog"
PYTHON_PACKAGES = "/usr/lib/python3/dist-packages"  # in the module path of every Debian's python3
JOB_TMP = "/var/lib/headway/job-tmp"  # private /tmp of each job
JOB_SHM = "/dev/shm/headway"  # private /dev/shm of each job
SECRETS = "/run/headway/secrets"  # where a job sees its own secrets
JOB_SECRETS = "/run/headway/job-secrets"  # secrets of each job, in memory; private_tmp.c binds them to SECRETS
SLURMD_SPOOL = "/var/lib/slurm/slurmd"
PMIX = "/run/headway/pmix"  # shared by the tasks of an MPI program on one node


def agent_argv(*words: str) -> list[str]:
    """Returns the command that runs the agent's program with these arguments."""
    return [*AGENT_COMMAND.split(), *words]
