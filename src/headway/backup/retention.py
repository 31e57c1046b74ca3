"""Deletes old backups of a cluster."""

from __future__ import annotations

from pathlib import Path

from headway.errors import Refused


def delete_old_backups(folder: Path, cluster: str, keep: int, made: Path) -> tuple[str, ...]:
    """Removes old backups of the cluster in this folder. `keep` are kept: the one just made (`made`) and the most
    recent others; the most recent one of another Slurm version is kept as well. Backups may carry later dates than
    `made` if a clock was ahead. Returns one message for each that could not be removed."""
    from headway.backup.archive import list_archives

    stay = []
    try:
        rows = [(path, header) for path, header, _ in list_archives(folder) if header.cluster == cluster]
    except Refused as error:
        return (error.message,)
    now = {header.slurm_version for path, header in rows if path == made}
    # to return to the previous Slurm version
    back = next((path for path, header in rows if now and header.slurm_version not in now), None)
    others = [path for path, _ in rows if path not in (made, back)]
    for path in others[max(0, keep - 1) :]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            stay.append(f"{path.name}: {error.strerror or error}")
    return tuple(stay)
