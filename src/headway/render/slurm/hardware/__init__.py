"""The hardware of nodes as Slurm gets it, the parts of their GPUs, and the default share of a job.

Not here: reading the hardware of a machine (`headway.providers.ssh.survey_parser`)."""
