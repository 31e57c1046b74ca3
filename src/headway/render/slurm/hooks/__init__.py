"""Programs that Slurm runs: prolog and epilog, the filter of sbatch and srun, power saving. Configuration files are in
`headway.render.slurm`."""
