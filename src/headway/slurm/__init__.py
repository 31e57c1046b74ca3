"""Commands and reads of Slurm: the argv of every Slurm program, and slurmrestd. Callers decide what to do."""
