"""One of two server processes on one database: `HEADWAY_DATA` is the folder that both share. Machines are simulated;
submissions go to the real node/user_helper on this machine, with a stand-in for sbatch that counts."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

from headway import paths
from headway.errors import Unreachable
from headway.jobs.remote.helper_pool import HelperPool
from headway.jobs.submission.submit import run_sbatch
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.server.main import NotebookAddress, serve
from headway.store import Store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.machines.local_head import HEAD, PERSON, Machine
from tests.support.servers.server_fakes import changes


class Shared(FakeBackend):
    """A backend with simulated machines and the real submission helper."""

    def __init__(self, _store: Store, data: Path) -> None:
        super().__init__(
            plan=changes(),
            machines=(),
            readiness_checks=(),
            read=Unreachable("no Slurm"),
            apply=self._apply,
            usage_runs=(),
        )
        self._data = data
        self._links = HelperPool(Machine(data / "home"))
        self.jobs.submit = self._submit  # type: ignore[method-assign]

    async def _apply(self, cluster: Any, report: Any) -> None:
        """Takes a moment in which the server may be killed; records two applies of a cluster at the same time."""
        with (self._data / f"{cluster.name}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (self._data / "two-at-once").write_text(cluster.name)
            await report("nodes", "change")
            await asyncio.sleep(0.15)

    async def _submit(self, _: Any, request: SubmitIn, user: str, stage: Any = None, *, tag: str = "") -> SubmitOut:
        return await run_sbatch(self._links, HEAD, request, PERSON, None, tag)


if __name__ == "__main__":
    serve(
        paths.state_dir(),
        port=0,
        url=os.environ["HEADWAY_DATABASE_URL"],
        data_dir=Path(os.environ["HEADWAY_DATA"]),
        notebooks=NotebookAddress(0),
        make_backend=Shared,
    )
