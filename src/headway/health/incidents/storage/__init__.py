"""Incidents of disks and volumes: a full disk of a node or of a host, a volume that is not mounted.

Not here: the checks that find them (`node/agent/checks`)."""
