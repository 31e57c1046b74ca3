"""The task prolog, which slurmd runs as the job's user before each task; it reads from its output which variables the task
gets."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK
from headway.render.machine_paths import PYTHON_PACKAGES, TASK_PROLOG

_BEGIN = f"""\
#!/bin/sh
# {MARK}
# Prints the variables that a task gets. A job starts also if this fails.
"""
_MLFLOW = f"""\
# MLFLOW_TRACKING_URI and MLFLOW_TRACKING_TOKEN
python3 -I -S {PYTHON_PACKAGES}/headway_train/mlflow_receiver/task_prolog.py
"""
# Without PBS_ENVIRONMENT, by which an Open MPI that was built for PBS would look for the daemons of PBS.
_PBS = """\
# Variables of PBS. Steps of srun inherit those of the batch script.
# A job that a job has submitted inherits those of the first: what has no value is unset.
give() { if [ -n "$2" ]; then printf 'export %s=%s\\n' "$1" "$2"; else printf 'unset %s\\n' "$1"; fi; }
if [ "$PBS_JOBID" != "$SLURM_JOB_ID" ]; then
    nodes=/tmp/pbs-nodefile-$SLURM_JOB_ID
    # A line for each task: SLURM_TASKS_PER_NODE is such as 2(x3),1
    scontrol show hostnames "$SLURM_JOB_NODELIST" | awk -v tasks="$SLURM_TASKS_PER_NODE" '
        BEGIN {
            for (i = 1; i <= split(tasks, part, ","); i++) {
                times = match(part[i], /x[0-9]+/) ? substr(part[i], RSTART + 1, RLENGTH - 1) : 1
                for (j = 0; j < times; j++) count[++known] = part[i] + 0
            }
        }
        { for (j = 0; j < (NR in count ? count[NR] : 1); j++) print }' >"$nodes.$$"
    tasks=$(wc -l <"$nodes.$$")
    # Without a batch script this runs once for each task, at the same time.
    if [ "${tasks:-0}" -eq 0 ] || ! mv -f "$nodes.$$" "$nodes"; then
        rm -f "$nodes.$$"
        nodes= tasks=
    fi
    # sbatch sets SLURM_NTASKS_PER_NODE for --ntasks-per-node only, and qsub -l nodes=2:ppn=4 becomes -N2 -n8
    ppn=$SLURM_NTASKS_PER_NODE
    case $SLURM_TASKS_PER_NODE in *,*) ;; *) ppn=${ppn:-${SLURM_TASKS_PER_NODE%%(*}} ;; esac
    give PBS_JOBID "$SLURM_JOB_ID"
    give PBS_JOBNAME "$SLURM_JOB_NAME"
    give PBS_O_WORKDIR "$SLURM_SUBMIT_DIR"
    give PBS_O_HOST "$SLURM_SUBMIT_HOST"
    give PBS_O_HOME "$HOME"
    give PBS_O_LOGNAME "$SLURM_JOB_USER"
    give PBS_O_PATH "$PATH"
    give PBS_QUEUE "$SLURM_JOB_PARTITION"
    give PBS_O_QUEUE "$SLURM_JOB_PARTITION"
    give PBS_ACCOUNT "$SLURM_JOB_ACCOUNT"
    give PBS_ARRAY_INDEX "$SLURM_ARRAY_TASK_ID"
    give PBS_ARRAYID "$SLURM_ARRAY_TASK_ID"
    give PBS_NUM_NODES "$SLURM_JOB_NUM_NODES"
    give PBS_NUM_PPN "$ppn"
    give PBS_NP "$tasks"
    give PBS_NODEFILE "$nodes"
    give NCPUS "$SLURM_CPUS_ON_NODE"
fi
"""


def uses_task_prolog(cluster: Cluster) -> bool:
    """Returns whether jobs of this cluster get variables from a task prolog."""
    return cluster.mlflow or cluster.pbs_variables


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the script; {} if jobs of this cluster get no variables from it."""
    if not uses_task_prolog(cluster):
        return {}
    parts = [_MLFLOW] if cluster.mlflow else []
    parts += [_PBS] if cluster.pbs_variables else []
    return {TASK_PROLOG: File("".join([_BEGIN, *parts, "exit 0\n"]), mode=0o755)}
