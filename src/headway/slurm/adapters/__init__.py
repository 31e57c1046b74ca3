"""One adapter per slurmrestd version that was really run. `adapter(slurm_version)` gives the one to use."""

from __future__ import annotations

from headway.errors import Refused
from headway.slurm.adapters.base import Adapter


def adapter(slurm_version: str) -> Adapter:
    """Raises Refused for a Slurm version that Headway was never run against."""
    if slurm_version.startswith("24.11"):
        from headway.slurm.adapters.v0_0_42 import ADAPTER

        return ADAPTER
    raise Refused(f"Slurm {slurm_version} is not supported", hint="images: debian13 (Slurm 24.11)")
