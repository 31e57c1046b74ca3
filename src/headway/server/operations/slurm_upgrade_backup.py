"""The backup that is made before an upgrade of Slurm, to return to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headway import __version__
from headway.backup.passphrase_file import read_passphrase
from headway.domain.cluster import Cluster
from headway.domain.operation_progress import ReportProgress
from headway.errors import InvalidSpec, Refused
from headway.rollout.slurm_upgrade_rules import is_upgrade, upgrade_fault
from headway.server.operations.backups import back_up
from headway.services.app_state import AppState
from headway.services.storage.path_policy import require_allowed_path
from headway.store import ClusterRow


async def back_up_before_slurm_upgrade(
    state: AppState, row: ClusterRow, before: Cluster, after: Cluster, report: ReportProgress
) -> None:
    """Makes a backup before an upgrade of Slurm; does nothing if the version stays the same. The new file says where
    to and with which key. Raises HeadwayError, with nothing changed; also if the running Slurm can't be upgraded to
    this version, or its image can't be built."""
    written = state.clusters.stored_slurm_version(after, before)
    if fault := upgrade_fault(written, after, exists=True):
        raise InvalidSpec([fault])
    if not is_upgrade(written, before, after):
        return
    state.clusters.record_slurm_version(after, written)  # the stored file will be the new one at the next try
    await state.backend.rollouts.ensure_image(after, report)
    from headway.backup import archive
    from headway.backup.create import file_of

    rule = after.backup
    if rule is None:
        raise Refused(f"{after.name} has no backup field", hint="backup: {to: DIR, key_file: FILE}")
    header = archive.Header(after.name, state.clock(), __version__, written, archive.new_salt())
    path = file_of(require_allowed_path(state, rule.to), header)
    passphrase = await asyncio.to_thread(read_passphrase, Path(rule.key_file))
    key = await asyncio.to_thread(archive.key_of, passphrase, header.salt)
    await report("backup", f"before Slurm {written} becomes {after.slurm_version}: the way back")
    await back_up(state, row, before, report, path, header, key)
