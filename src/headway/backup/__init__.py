"""Backups of clusters, restoring them, and replacing keys while jobs run."""
