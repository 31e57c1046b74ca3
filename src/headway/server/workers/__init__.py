"""Loops that run as long as the server: leader election, operations, snapshots, agent events, billing, scheduled
backups."""
