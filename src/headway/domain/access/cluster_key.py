"""The keys of a cluster that `headway keys rotate` replaces."""

from __future__ import annotations

from enum import StrEnum


class ClusterKey(StrEnum):
    """A key of a cluster."""

    MUNGE = "munge"
    JWT = "jwt"
    SSH = "ssh"
    DATABASE = "database"
