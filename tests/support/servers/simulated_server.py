"""A real server process whose work is simulated: an apply waits until the file `go` is in the state folder."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from headway import paths
from headway.server.listen_settings import read_listen_settings
from headway.server.main import NotebookAddress, serve
from headway.server.oidc_settings import read_oidc_settings
from headway.store import Store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers.server_fakes import changes


def make_backend(_store: Store, state_dir: Path) -> FakeBackend:
    """Returns a backend whose apply waits for the file `go` in the state folder."""

    async def apply(_cluster: Any, report: Any) -> None:
        await report("machines", "are made")
        while not (state_dir / "go").exists():
            await asyncio.sleep(0.01)
        await report("machines", "are up", done=True)

    return FakeBackend(
        plan=changes(), apply=apply, machines=(), readiness_checks=(), read=ConnectionRefusedError("no Slurm")
    )


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    serve(
        paths.state_dir(),
        os.environ.get("HEADWAY_HOST") or "127.0.0.1",
        port,
        notebooks=NotebookAddress(int(os.environ.get("HEADWAY_NOTEBOOK_PORT", "0"))),
        listen=read_listen_settings(os.environ, paths.state_dir()),
        oidc=read_oidc_settings(os.environ),
        make_backend=make_backend,
    )
