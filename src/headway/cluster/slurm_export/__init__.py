"""Plain Slurm files of a cluster, which run without Headway: `headway export slurm`.

Not here: the files of a Headway cluster (`render.slurm`), the import of a Slurm site (`slurm_import`)."""
