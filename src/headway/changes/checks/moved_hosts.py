"""Which machines come to a cluster of owned machines and which leave it, because `hosts` has changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from headway.domain.slurm.hostlist import natural_key

_SHOWN = 8


def moved_host_notes(there: Mapping[str, str], listed: Mapping[str, str], taken: Collection[str]) -> Iterator[str]:
    """Yields the notes. `there`: the addresses of the cluster's machines by name, `listed`: those of the inventory, `taken`:
    the names whose machine the inventory still has. A cluster without machines has no notes: all of them come."""
    if not there:
        return
    come = {name: listed[name] for name in listed if name not in taken}
    leave = {name: there[name] for name in there if name not in taken or name not in listed}
    for word, moved in (("come", come), ("leave", leave)):
        if moved:
            names = sorted(moved, key=natural_key)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            yield f"machines that {word}: {', '.join(f'{moved[name]} ({name})' for name in names[:_SHOWN])}{more}"
