"""Nodes of the site that is imported: their lines, the groups of equal ones, and the switches between them.

Not here: partitions (`slurm_import.partition_lines`)."""
