"""Programs that Slurm runs: prolog and epilog, the filter of sbatch and srun, power saving.

Not here: Slurm's configuration files (`render.slurm`)."""
