"""Dataset versions: read-only folders that are stored once under their SHA-256, imported from a folder or from S3.
Volumes are in `cluster.volumes`."""
