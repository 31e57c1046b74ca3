"""The dataset library: versions of read-only data, stored once under its SHA-256. Volumes are in `headway.cluster.volumes`."""
