"""The dataset library: versions of read-only folders, stored once under their SHA-256 and imported from a folder or from
S3. Volumes are in `cluster.volumes`."""
