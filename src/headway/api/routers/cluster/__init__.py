"""Endpoints of a cluster, its nodes, operations, storage, datasets, incidents, metrics and backups."""
