"""Use cases of clusters: planning, status, nodes, incidents, operations, storage, backups, metrics."""
