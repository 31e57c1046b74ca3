"""Endpoints of a cluster, its nodes, operations, storage, datasets, incidents, metrics and backups.

Not here: the queue and single jobs (`api.routers.jobs`)."""
