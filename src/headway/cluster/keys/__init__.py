"""Secrets of a cluster in the server's store, and the replacement of its MUNGE, JWT and SSH keys while jobs run."""
