"""Values of jobs that several layers need: the limits of their bundles, and their QOS.

Not here: jobs as Slurm reports them (`domain.slurm`)."""
