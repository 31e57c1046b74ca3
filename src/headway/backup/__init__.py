"""Backups of clusters: the file format, writing, restoring, and deleting old files. When scheduled backups run is
decided in `server.workers`; keys are replaced in `cluster.keys`."""
