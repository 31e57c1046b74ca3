"""Resolves a large cluster file in a process of its own (`python -m headway.server.cluster_backend.resolve_process`): the
server answers other requests meanwhile, and the memory is given back when the process ends.

Standard input is the document as JSON. Standard output is a pickle of (cluster or None, faults, name of the file)."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys

from headway.domain.cluster import Cluster
from headway.errors import CommandFailed, Fault, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.services.cluster_backend import ResolvedCluster
from headway.services.memory_release import release_memory_soon
from headway.transport.process import run_process

ARGV = (sys.executable, "-m", "headway.server.cluster_backend.resolve_process")
TIMEOUT_S = 60.0
MOST_AT_ONCE = 2
MANY_VALUES = 5000  # from this many values on a document is resolved in a process
_MAX_OUTPUT = 256 * 1024 * 1024  # bytes
_at_once = asyncio.Semaphore(MOST_AT_ONCE)


def is_large(document: Document) -> bool:
    """Returns whether a document has so many values that resolving it would delay other requests. Counts no further
    than MANY_VALUES, and not what is in a collection that is larger than a cluster file may have: that is refused
    without a look at its entries."""
    from headway.catalog.plans import CatalogueFile
    from headway.clusterfile.models.cluster_file import ClusterFile
    from headway.validation.collection_sizes import Sizes, model_sizes

    waiting: list[tuple[object, Sizes]] = [
        (document.spec, model_sizes(ClusterFile)),
        (document.catalogue, model_sizes(CatalogueFile)),
    ]
    count = 0
    while waiting:
        value, sizes = waiting.pop()
        if not isinstance(value, dict | list) or len(value) > sizes.most:
            continue
        count += len(value)
        if count > MANY_VALUES:
            return True
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            waiting.append((inner, sizes.inside(key)))
    return False


async def resolve_in_process(document: Document) -> ResolvedCluster:
    """Returns the resolved document. At most MOST_AT_ONCE processes run at a time; others wait. Raises InvalidSpec, and
    Refused if it takes too long."""
    async with _at_once:
        release_memory_soon()  # of the request and of the result
        try:
            ran = await run_process(
                ARGV, timeout_s=TIMEOUT_S, input=document.model_dump_json().encode(), max_output=_MAX_OUTPUT
            )
        except CommandFailed as error:
            if error.code is not None:
                raise
            raise Refused(
                f"the cluster file is too large: checking it took more than {TIMEOUT_S:g} s", hint="shorten its lists"
            ) from None
    cluster, faults, file = pickle.loads(ran.out)
    if cluster is None:
        raise InvalidSpec(faults, file)
    return ResolvedCluster(cluster, faults)


def main() -> None:
    """Reads a document from standard input and writes the result to standard output."""
    from headway.catalog.plans import load_catalogue
    from headway.clusterfile.load import resolve_cluster_file

    os.nice(5)
    document = Document.model_validate_json(sys.stdin.buffer.read())
    result: tuple[Cluster | None, tuple[Fault, ...], str]
    try:
        catalogue = load_catalogue(document.catalogue)
        result = (*resolve_cluster_file(document.spec, catalogue, owner=document.owner), "")
    except InvalidSpec as error:
        result = None, error.faults, error.first_line.partition(" has ")[0]
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
