"""What a second head needs: where Slurm's state lies, and what keeps two controllers from leading at once."""
