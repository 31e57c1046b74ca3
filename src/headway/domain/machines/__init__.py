"""Types of machines: their slots, the files and systemd units that they should have, and what was observed on them.

Not here: Slurm's nodes (`domain.slurm`)."""
