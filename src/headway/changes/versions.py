"""Which Slurm takes over from which. SchedMD's rule: slurmdbd, slurmctld and slurmd read the state of the few releases right
before their own, and of none after it."""

from __future__ import annotations

from headway.domain.change import Change
from headway.domain.cluster import Cluster
from headway.errors import Fault

RELEASES = (
    "22.05",
    "23.02",
    "23.11",
    "24.05",
    "24.11",
    "25.05",
    "25.11",
    "26.05",
)  # https://slurm.schedmd.com/upgrades.html
_BACK = {"22.05": 2, "23.02": 2, "23.11": 2, "24.05": 2}  # and three from 24.11 on
_LATER = 3


def hops(before: Cluster, after: Cluster) -> bool:
    """Whether Slurm's version changes."""
    return before.slurm_version != after.slurm_version


def hop_fault(before: Cluster | None, after: Cluster) -> Fault | None:
    """Why `after`'s Slurm can't go on with what `before`'s has left; None where it can, or where there is nothing yet."""
    if before is None or not hops(before, after):
        return None
    old, new = before.slurm_version, after.slurm_version
    if old not in RELEASES or new not in RELEASES:
        return Fault("image", f"whether Slurm {new} reads the state of Slurm {old} is not known", "keep the image")
    steps = RELEASES.index(new) - RELEASES.index(old)
    most = _BACK.get(new, _LATER)
    if 0 < steps <= most:
        return _unready(before, after)
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


def backup_first(before: Cluster | None, after: Cluster) -> tuple[Change, ...]:
    """What an apply does before Slurm becomes another."""
    if before is None or after.backup is None or not hops(before, after):
        return ()
    why = f"Slurm {before.slurm_version} becomes {after.slurm_version}: a backup comes first, the one way back"
    return (Change("backup.make", "cluster", str(after.backup.to), why),)


def _unready(before: Cluster, after: Cluster) -> Fault | None:
    old, new = before.slurm_version, after.slurm_version
    if after.provider != "local":
        return Fault(
            "image",
            f"the machines of {before.name} are your own, and Headway takes no Slurm away from them: they run {old}",
            f"keep image: {before.image}, or make a cluster of other machines with {after.image}",
        )
    if after.backup is None:
        return Fault(
            "backup",
            f"Slurm {old} becomes {new} after a backup, for there is no other way back, and the file asks for none",
            "backup: {to: DIR, key_file: FILE}",
        )
    return None
