"""Checks and resolves a cluster file: text -> mapping -> faults and a resolved Cluster. No I/O: the client has already
read the key files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from headway.clusterfile.draft import FileDraft
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.resolve import build_cluster
from headway.clusterfile.rules.all_rules import check_all
from headway.domain.cluster import Cluster, Plan
from headway.errors import Fault, InvalidSpec
from headway.validation.error_paths import Loc, drop_values, path_text, pydantic_faults, sort_faults, text_faults

_FIELDS = {name: number for number, name in enumerate(ClusterFile.model_fields)}
# Valid values for fields that were removed, so that the other fields can still be checked
_STAND_INS: dict[str, Any] = {"name": "x"}
_MOST_ROUNDS = 8
MOST_SORTED_OUT = 5000  # with more faults the rest of the file is not checked


def check_cluster_file(
    spec: Mapping[str, Any], catalogue: Mapping[str, Plan], *, owner: str
) -> tuple[Cluster | None, list[Fault]]:
    """Returns all faults of a cluster file, and the cluster if none of them is an error.

    `spec` is the loaded mapping with public keys inlined and paths absolute, `owner` the user name of the person who
    applies it. Bad input does not raise."""
    if not isinstance(spec, dict):
        return None, [Fault("", "a cluster file is a mapping of fields", "create one with headway init")]
    found, plain = text_faults(spec, ClusterFile)
    if not isinstance(plain, dict) or len(found) > MOST_SORTED_OUT or any(fault.path == "" for _, fault in found):
        return None, sort_faults(found, _FIELDS)
    file, gone, kept = _sound_part(plain, found)
    faults = sort_faults(found, _FIELDS)
    if file is None:
        return None, faults
    draft = FileDraft(file, spec, owner, catalogue, gone, kept)
    check_all(draft)
    faults = sort_faults([*found, *(((), fault) for fault in draft.faults)], _FIELDS)
    if any(fault.level == "error" for fault in faults):
        return None, faults
    return build_cluster(file, catalogue, owner), faults


def resolve_cluster_file(
    spec: Mapping[str, Any], catalogue: Mapping[str, Plan], *, owner: str
) -> tuple[Cluster, tuple[Fault, ...]]:
    """Returns the resolved cluster and the warnings. Raises InvalidSpec with all errors of the file."""
    cluster, faults = check_cluster_file(spec, catalogue, owner=owner)
    if cluster is None:
        raise InvalidSpec([fault for fault in faults if fault.level == "error"])
    return cluster, tuple(faults)


def _sound_part(
    plain: dict[str, Any], found: list[tuple[Loc, Fault]]
) -> tuple[ClusterFile | None, frozenset[str], dict[str, list[int]]]:
    """Returns the file without its faulty fields, the paths of the removed values, and for each shortened list the
    indexes of the items that stayed. Adds the faults to `found`."""
    text_places = dict.fromkeys(loc for loc, _ in found)
    gone = {path_text(loc) for loc in text_places}
    kept: dict[str, list[int]] = {}
    for number in range(_MOST_ROUNDS):
        try:
            return ClusterFile.model_validate(plain), frozenset(gone), kept
        except ValidationError as error:
            bad = list(islice(pydantic_faults(error, ClusterFile), MOST_SORTED_OUT))
            if error.error_count() > MOST_SORTED_OUT:
                found.extend(bad)
                return None, frozenset(gone), kept
        if number == 0:
            # Texts with forbidden characters were reported before; another fault of the same field would be noise.
            found.extend((loc, fault) for loc, fault in bad if loc not in text_places)
            bad.extend((loc, Fault("", "")) for loc in text_places)
        places = [_whole(loc, fault) for loc, fault in bad]
        gone.update(path_text(loc) for loc in places)
        kept.update(drop_values(plain, places))
        for name, value in _STAND_INS.items():
            if plain.get(name) is None:
                plain[name] = value
                gone.add(name)
    return None, frozenset(gone), kept


def _whole(loc: Loc, fault: Fault) -> Loc:
    """Returns the place to remove: the faulty field itself, or the parent of a missing field."""
    return loc[:-1] if fault.message == "is missing" and len(loc) > 1 else loc
