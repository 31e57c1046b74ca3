"""Loops that run as long as the server: leader election, operations, snapshots, agent events, billing, scheduled
backups.

Not here: the work of an operation (`server.operations`), rules of billing (`headway.billing`)."""
