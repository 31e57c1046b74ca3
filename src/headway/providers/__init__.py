"""Providers create, list, start, stop and delete machines that accept SSH. Work on a machine is the same for all
providers and is in `headway.cluster`."""
