"""Backups of a cluster, coming back from them, and keys that change while jobs run."""
