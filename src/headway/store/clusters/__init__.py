"""Stored data about clusters: cluster files, secrets, operations, incidents, datasets, activity."""
