"""How the real programs read a candidate configuration before it takes the old one's place."""

from __future__ import annotations


def candidate_check(folder: str) -> list[list[str]]:
    """argv lists to run on the head, each must end with 0; `folder` holds slurm.conf and the files beside it."""
    return [["env", f"SLURM_CONF={folder}/slurm.conf", "slurmd", "-f", f"{folder}/slurm.conf", "-C"]]
