"""Strict parsing of what people write: YAML, types of fields, syntax rules of single values, and the path of each
error.

Not here: rules across fields of the cluster file (`clusterfile.rules`), answers of other programs (their reader, such
as `headway.slurm`)."""
