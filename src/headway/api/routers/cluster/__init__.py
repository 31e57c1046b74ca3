"""Endpoints of a cluster, its nodes, storage, incidents, metrics and backups."""
