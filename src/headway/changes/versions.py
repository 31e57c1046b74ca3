"""Which Slurm takes over from which. SchedMD's rule: slurmdbd, slurmctld and slurmd read the state of the few releases right
before their own, and of none after it."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.errors import Fault

RELEASES = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11")
_BACK = {"22.05": 2, "23.02": 2, "23.11": 2, "24.05": 2}  # and three from 24.11 on
_LATER = 3


def hop_fault(before: Cluster | None, after: Cluster) -> Fault | None:
    """Why `after`'s Slurm can't go on with what `before`'s has left; None where it can, or where there is nothing yet."""
    if before is None or before.slurm_version == after.slurm_version:
        return None
    old, new = before.slurm_version, after.slurm_version
    if old not in RELEASES or new not in RELEASES:
        return Fault("image", f"whether Slurm {new} reads the state of Slurm {old} is not known", "keep the image")
    steps = RELEASES.index(new) - RELEASES.index(old)
    most = _BACK.get(new, _LATER)
    if 0 < steps <= most:
        return None
    elsewhere = (
        f"keep image: {before.image}, or make a cluster of another name with {after.image} and move people to it"
    )
    if steps < 0:
        return Fault(
            "image", f"Slurm {new} can't read what Slurm {old} has written: SchedMD supports no way back", elsewhere
        )
    reads = ", ".join(RELEASES[RELEASES.index(new) - most : RELEASES.index(new)])
    return Fault(
        "image",
        f"Slurm {new} takes over from {reads}, not from {old}, which this cluster runs: jobs and accounting would be lost",
        elsewhere,
    )
