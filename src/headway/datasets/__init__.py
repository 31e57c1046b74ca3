"""Stores the files of dataset versions, each content once under its SHA-256, and imports them from a folder or from S3.
The rules of datasets (which names are free, which version a job gets, what may be removed) are in `services.storage.datasets`;
volumes are in `cluster.volumes`."""
