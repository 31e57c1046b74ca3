"""Rules for `storage.state`: the folder of Slurm's state on owned machines, which a second controller needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.clusterfile.draft import FaultText
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.domain.provider_traits import ProviderTraits
from headway.validation import syntax_rules

FIELD = "storage.state"
_EXAMPLE = "for example /shared/headway"
_PEOPLES = re.compile(r"/(home|scratch)(/[^.].*)?")


def state_folder_faults(file: ClusterFile, provider: ProviderTraits) -> Iterator[FaultText]:
    """Yields the faults that the file alone shows. changes.checks.state_folder checks on the machines which disk the
    folder is on."""
    state = file.storage.state
    if state is None:
        if file.controllers > 1 and not provider.provides_head_state:
            yield (
                FIELD,
                "is missing: Slurm's state on the head's disk or NFS export is lost with the head",
                "give a folder on a file system that both heads mount from another server: state: /shared/headway",
            )
    elif provider.provides_head_state:
        yield FIELD, "needs provider ssh", "remove it: the heads of local machines share a folder already"
    else:
        state = state.rstrip("/")
        problem = syntax_rules.path_fault(state) if state else "can't be the root folder"
        if problem:
            yield FIELD, problem, _EXAMPLE
        elif _PEOPLES.fullmatch(state):
            yield FIELD, "holds the users' folders", "for example /home/.headway"
        else:
            yield from _on_volume(file, state)


def _on_volume(file: ClusterFile, state: str) -> Iterator[FaultText]:
    for volume in file.storage.volumes:
        if not f"{state}/".startswith(f"{volume.path.rstrip('/')}/"):
            continue
        kind, source, *options = volume.mount.split()
        flags = options[0].split(",") if options else []
        if kind == "none" or "bind" in flags:
            what = f"is on volume {volume.name}, which is a bind mount of {source}"
            yield FIELD, what, f"give that folder: state: {source}"
        elif "ro" in flags:
            yield FIELD, f"is on volume {volume.name}, which is read-only", "give a writable folder"
