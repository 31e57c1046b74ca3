"""One cluster's machines and Slurm: observe what is there, apply what must change, take it down."""
