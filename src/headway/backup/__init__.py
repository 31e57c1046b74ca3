"""Backups of clusters: the file format, writing, restoring, and deleting old files.

Not here: when scheduled backups run (`server.workers`), the replacement of keys (`cluster.keys`)."""
