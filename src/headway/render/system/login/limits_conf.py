"""Resource limits of login sessions on every machine (limits.d). The share of the head's CPUs and memory that users get is in
`head_user_limits`."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Group
from headway.render.escaping import script

_LEAST_PROCESSES, _PROCESSES_PER_CPU = 16384, 256  # data loaders and libraries start many threads, each of which counts
_PROCESSES_ON_ONE_HOST = 8192  # the kernel counts a user's processes on all local machines together
# The limit of a job with few CPUs: less than a user may have, so that the user's other jobs go on.
LEAST_JOB_PROCESSES = 4096


def user_processes(cluster: Cluster, group: Group) -> int:
    """Returns how many processes and threads one user may have on a node of the group, in all jobs together: enough for
    programs, too few to use up the process numbers of the kernel (32768 on a small machine, otherwise 4 million)."""
    if cluster.provider.shares_one_host:
        return _PROCESSES_ON_ONE_HOST
    return max(_LEAST_PROCESSES, _PROCESSES_PER_CPU * group.plan.cpus)


def job_processes_per_cpu(cluster: Cluster) -> int:
    """Returns how many processes and threads a job may have on a node for each of its CPUs; 0 if every job has
    LEAST_JOB_PROCESSES. The limit is never less than LEAST_JOB_PROCESSES, so a job with all CPUs of a node of 64 or more has
    the limit of its user."""
    return 0 if cluster.provider.shares_one_host else _PROCESSES_PER_CPU


def login_limits(processes: int = 0) -> str:
    """Returns the resource limits of login sessions. `processes`: most of one user, without root; 0 = no limit here."""
    return script(
        *(
            ["# Processes and threads of one user, in jobs and sessions together.", f"* - nproc {processes}"]
            if processes
            else []
        ),
        "# Locked memory for network cards, many open files for data loaders. Jobs have Slurm's limits.",
        "* soft nofile 16384",
        "* - memlock unlimited",
        "# No core files by default; `ulimit -c unlimited` enables them.",
        "* soft core 0",
    )
