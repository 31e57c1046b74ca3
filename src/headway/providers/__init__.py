"""Providers create, list, start, stop and delete machines that accept SSH.

Not here: work on a machine, which is the same for all providers (`headway.cluster`)."""
