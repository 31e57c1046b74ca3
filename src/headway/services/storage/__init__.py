"""Use cases of a cluster's data: volumes, dataset versions, software environments, backups, and the paths that requests may
name. The rules of datasets and environments are here; reading and writing their files is in `headway.datasets`,
`headway.environments` and `headway.backup`."""
