"""Rules of the keys of slurm.conf in the sections `slurm`."""

from __future__ import annotations

from collections.abc import Mapping

from headway.catalog import allowed_slurm_keys
from headway.catalog.node_images import IMAGES
from headway.clusterfile.draft import FileDraft


def check_slurm_keys(draft: FileDraft) -> None:
    """Checks that Headway leaves each key to the file, and that its value suits the Slurm version."""
    if not draft.is_intact("image"):
        return
    version = IMAGES[draft.file.image].slurm.name
    tables: list[tuple[str, Mapping[str, str], bool]] = [("slurm", draft.file.slurm, False)]
    tables += [(f"partitions.{name}.slurm", part.slurm, True) for name, part in draft.file.partitions.items()]
    for path, table, partition in tables:
        for key, value in table.items():
            message, hint = allowed_slurm_keys.key_fault(key, value, version, partition=partition)
            if message:
                draft.fault(f"{path}.{key}", message, hint)
    least, unkillable = (
        allowed_slurm_keys.least_unkillable_s(draft.file.slurm),
        draft.file.slurm.get("UnkillableStepTimeout", ""),
    )
    if unkillable.isdecimal() and int(unkillable[:12]) < least:
        words = f"is less than five times MessageTimeout, which Slurm reports as an error: Headway uses {least}"
        draft.warn("slurm.UnkillableStepTimeout", words, f"give {least} or more")
    jobs, array = draft.file.slurm.get("MaxJobCount", ""), draft.file.slurm.get("MaxArraySize", "")
    if jobs.isdecimal() and array.isdecimal() and int(jobs[:12]) < int(array[:12]):
        draft.warn("slurm.MaxJobCount", "is less than MaxArraySize, so a whole array does not fit in the queue")
