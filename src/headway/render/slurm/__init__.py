"""Slurm's configuration files, and the effects of a changed slurm.conf.

Not here: programs that Slurm runs (`render.slurm.hooks`), a second controller (`render.ha`), Slurm's commands
(`headway.slurm`)."""
