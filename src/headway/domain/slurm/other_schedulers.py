"""Variables and commands of PBS, Grid Engine and LSF, and those of Slurm that take their place."""

from __future__ import annotations

from collections.abc import Mapping

# Variable of a job -> Slurm's variable, "" for none. Only names that no other program uses.
PBS_VARIABLES: Mapping[str, str] = {
    "PBS_O_WORKDIR": "SLURM_SUBMIT_DIR", "PBS_JOBID": "SLURM_JOB_ID", "PBS_JOBNAME": "SLURM_JOB_NAME",
    "PBS_ARRAYID": "SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX": "SLURM_ARRAY_TASK_ID", "PBS_ARRAY_ID": "SLURM_ARRAY_JOB_ID",
    "PBS_NUM_NODES": "SLURM_JOB_NUM_NODES", "PBS_NP": "SLURM_NTASKS", "PBS_NUM_PPN": "SLURM_NTASKS_PER_NODE",
    "PBS_QUEUE": "SLURM_JOB_PARTITION", "PBS_O_QUEUE": "SLURM_JOB_PARTITION", "PBS_O_HOST": "SLURM_SUBMIT_HOST",
    "PBS_O_HOME": "HOME", "PBS_O_LOGNAME": "LOGNAME", "PBS_O_PATH": "PATH", "PBS_O_SHELL": "SHELL",
    "PBS_NODEFILE": "", "PBS_GPUFILE": "",
}  # fmt: skip
SGE_VARIABLES: Mapping[str, str] = {
    "SGE_TASK_ID": "SLURM_ARRAY_TASK_ID", "SGE_TASK_FIRST": "SLURM_ARRAY_TASK_MIN", "SGE_TASK_LAST": "SLURM_ARRAY_TASK_MAX",
    "SGE_TASK_STEPSIZE": "SLURM_ARRAY_TASK_STEP", "SGE_O_WORKDIR": "SLURM_SUBMIT_DIR", "SGE_O_HOST": "SLURM_SUBMIT_HOST",
    "SGE_O_HOME": "HOME", "SGE_O_LOGNAME": "LOGNAME", "SGE_O_PATH": "PATH", "SGE_O_SHELL": "SHELL",
    "NSLOTS": "SLURM_NTASKS", "PE_HOSTFILE": "",
}  # fmt: skip
LSF_VARIABLES: Mapping[str, str] = {
    "LSB_JOBID": "SLURM_JOB_ID", "LSB_JOBINDEX": "SLURM_ARRAY_TASK_ID", "LSB_JOBINDEX_END": "SLURM_ARRAY_TASK_MAX",
    "LSB_JOBNAME": "SLURM_JOB_NAME", "LSB_QUEUE": "SLURM_JOB_PARTITION", "LSB_SUB_HOST": "SLURM_SUBMIT_HOST",
    "LSB_DJOB_NUMPROC": "SLURM_NTASKS", "LSB_MAX_NUM_PROCESSORS": "SLURM_NTASKS", "LS_SUBCWD": "SLURM_SUBMIT_DIR",
    "LSB_HOSTS": "", "LSB_DJOB_HOSTFILE": "", "LSB_MCPU_HOSTS": "",
}  # fmt: skip
COMMANDS: Mapping[str, str] = {
    "qsub": "sbatch", "qdel": "scancel", "qstat": "squeue", "bsub": "sbatch", "bkill": "scancel", "bjobs": "squeue",
    "jsrun": "srun", "aprun": "srun",
}  # fmt: skip
