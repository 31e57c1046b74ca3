"""Creates and deletes machines of groups with autoscaling, as Slurm's power saving requests. Scaling by a changed
cluster file is in `cluster.scaling`; the replacement of broken or reclaimed machines in `health.incidents`."""
