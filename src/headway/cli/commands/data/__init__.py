"""Commands for volumes, datasets, container images and backups."""
