"""Use cases of a cluster's data: volumes, dataset versions, software environments, backups, and the paths that requests
may name.

Not here: reading and writing the files (`headway.datasets`, `headway.environments`, `headway.backup`)."""
