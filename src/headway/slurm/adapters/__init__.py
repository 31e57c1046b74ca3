"""One adapter per slurmrestd version that has been run with Headway. `adapter(slurm_version)` returns the right one.

Not here: requests and tokens (`slurm.rest`), the table of releases (`catalog.slurm_releases`)."""

from __future__ import annotations

from headway.catalog.node_images import images_in_words
from headway.catalog.slurm_releases import SLURM_RELEASES, release_of
from headway.errors import Refused
from headway.slurm.adapters.base import Adapter


def adapter_for(slurm_version: str) -> Adapter:
    """Returns the adapter for a Slurm version such as "24.11.5". Raises Refused for a version that no node image
    has."""
    from headway.slurm.adapters import v0_0_38, v0_0_42

    release = SLURM_RELEASES.get(release_of(slurm_version))
    if release is None:
        hint = f"use one of the node images {images_in_words()}"
        raise Refused(f"Slurm {slurm_version} is not supported", hint=hint)
    return {"v0.0.38": v0_0_38.ADAPTER, "v0.0.42": v0_0_42.ADAPTER}[release.rest_version]
