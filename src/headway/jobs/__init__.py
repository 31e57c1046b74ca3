"""Jobs as people use them: submitted, cancelled and read as the person, by way of Slurm's own programs."""
