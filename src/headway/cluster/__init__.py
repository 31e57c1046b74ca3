"""One cluster's machines and Slurm: observe the present state, apply changes, take the cluster down."""
