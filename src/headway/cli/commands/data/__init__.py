"""Volumes, datasets, container images, backups."""
