"""Creates and deletes machines of groups with autoscaling, as Slurm's power saving requests.

Not here: scaling by a changed cluster file (`cluster.scaling`), the replacement of broken or reclaimed machines
(`health.incidents`)."""
