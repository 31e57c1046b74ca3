"""Backups of clusters: written, verified, restored and removed when newer ones replace them."""
