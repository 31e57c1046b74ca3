"""Backups of clusters: the file format, writing, restoring, and deleting old files.

Not here: the worker that queues scheduled backups (`server.workers.backup_schedule`), the
replacement of keys (`cluster.keys`)."""
