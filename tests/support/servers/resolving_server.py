"""The server of `simulated_server` that resolves cluster files as the real one does."""

from __future__ import annotations

import os
from pathlib import Path

from headway import paths
from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.schemas.clusters import Document
from headway.server.listen_settings import read_listen_settings
from headway.server.main import serve
from headway.services.cluster_backend import ResolvedCluster
from headway.store import Store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers import simulated_server


def make_backend(store: Store, state_dir: Path) -> FakeBackend:
    backend = simulated_server.make_backend(store, state_dir)

    async def resolve(document: Document) -> ResolvedCluster:
        backend.calls.clear()  # they hold each cluster of before
        return ResolvedCluster(*resolve_cluster_file(document.spec, load_catalogue({}), owner=document.owner))

    backend.lifecycle.resolve = resolve  # type: ignore[method-assign]
    return backend


if __name__ == "__main__":
    folder = paths.state_dir()
    serve(folder, "127.0.0.1", 0, listen=read_listen_settings(os.environ, folder), make_backend=make_backend)
