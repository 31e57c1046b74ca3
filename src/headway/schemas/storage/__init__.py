"""Models of a cluster's data: volumes, dataset versions, software environments, backups."""
