"""Bundles: a job's files as one archive, stored on the cluster under its digest."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator

from headway.domain.jobs.bundle_limits import MAX_ARCHIVE
from headway.errors import Refused, TooManyAtOnce
from headway.jobs.submission.job_folders import user_folders
from headway.schemas.submission.bundles import BundleOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState

MAX_ARCHIVES_IN_MEMORY = 4  # uploads to one cluster at a time
MAX_ARCHIVES_OF_PERSON = 2  # how many of these may be of one person
TURN_TIMEOUT_S = 60.0  # how long an upload waits for its turn


async def find_bundle(state: AppState, who: Principal, name: str, digest: str, user: str) -> BundleOut:
    """Returns whether the cluster already has the bundle under that user's home."""
    user, cluster = who.user_to_act_as(user), await cluster_to_work_on(state, name, who)
    with command_slot(state, who):
        present = await state.backend.jobs.store_bundle(cluster, user, user_folders(cluster, user).root, digest, b"")
    return BundleOut(digest=digest, present=present)


async def store_bundle(
    state: AppState, who: Principal, name: str, digest: str, user: str, chunks: AsyncIterator[bytes]
) -> BundleOut:
    """Stores a tar.gz, read-only and owned by the user. Raises Refused if it has more than MAX_ARCHIVE bytes, and
    TooManyAtOnce."""
    user, cluster = who.user_to_act_as(user), await cluster_to_work_on(state, name, who)
    size = 0
    # On disk, because uploads may be slow and many at a time
    with tempfile.TemporaryFile(dir=state.settings.state_dir) as file:
        async for chunk in chunks:
            size += file.write(chunk)
            if size > MAX_ARCHIVE:
                raise Refused(
                    f"the files are larger than {MAX_ARCHIVE // 2**20} MiB",
                    hint="exclude files with .gitignore; copy data to /scratch with headway cp",
                )
        file.seek(0)
        with command_slot(state, who):
            async with _turn(state, name, who.person):
                archive = await asyncio.to_thread(file.read)
                present = await state.backend.jobs.store_bundle(
                    cluster, user, user_folders(cluster, user).root, digest, archive
                )
    await write_audit_line(state, who, "files", name, digest=digest, bytes=size, user=user)
    return BundleOut(digest=digest, present=present)


@contextlib.asynccontextmanager
async def _turn(state: AppState, cluster: str, person: str) -> AsyncIterator[None]:
    """Limits the number of archives in memory. A hanging home or cluster does not delay other people and clusters.
    Raises TooManyAtOnce."""
    own = state.bundle_slots.setdefault((cluster, person), asyncio.Semaphore(MAX_ARCHIVES_OF_PERSON))
    every = state.bundle_slots.setdefault((cluster, ""), asyncio.Semaphore(MAX_ARCHIVES_IN_MEMORY))
    async with contextlib.AsyncExitStack() as entered:
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await entered.enter_async_context(own)
                await entered.enter_async_context(every)
        except TimeoutError:
            raise TooManyAtOnce(
                f"other uploads to {cluster} are running; this one did not start within {TURN_TIMEOUT_S:g} s",
                hint=f"try again in a moment; headway status {cluster} shows the cluster's state",
            ) from None
        yield
