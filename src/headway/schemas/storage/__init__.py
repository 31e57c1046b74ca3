"""Models of a cluster's data: volumes, dataset versions, software environments, backups.

Not here: the sections of the cluster file about volumes (`clusterfile.models`)."""
