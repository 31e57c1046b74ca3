"""The client's parts about stored data: volumes, datasets, software environments, backups."""
