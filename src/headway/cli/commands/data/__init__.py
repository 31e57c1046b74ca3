"""Datasets, storage, container images, backups, secrets."""
