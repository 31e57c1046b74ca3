"""One adapter per slurmrestd version that was really run. `adapter(slurm_version)` gives the one to use."""

from __future__ import annotations

from headway.errors import Refused
from headway.slurm.adapters.base import Adapter


def adapter(slurm_version: str) -> Adapter:
    """Raises Refused for a Slurm version that Headway was never run against."""
    from headway.slurm.adapters import v0_0_38, v0_0_42

    known = {"26.05": v0_0_42.ADAPTER, "24.11": v0_0_42.ADAPTER, "22.05": v0_0_38.ADAPTER}
    release = ".".join(slurm_version.split(".")[:2])
    if release not in known:
        raise Refused(
            f"Slurm {slurm_version} is not supported",
            hint="images: debian13 (Slurm 24.11), debian14 (26.05), debian12 (22.05)",
        )
    return known[release]
