"""Every list and mapping of a cluster file has a limit that is checked before its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headway.catalog.plans import CatalogueFile, load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.validation import error_paths
from headway.validation.collection_sizes import Sizes, model_sizes

BASE = {"name": "lab", "plan": "h100-8", "nodes": 4}
MANY = 100_000


def undeclared(sizes: Sizes, path: str = "") -> Iterator[str]:
    if not sizes.declared:
        yield path
    for name, inner in {**sizes.fields, **({"[]": sizes.item} if sizes.item else {})}.items():
        yield from undeclared(inner, f"{path}.{name}")


@pytest.mark.parametrize("model", [ClusterFile, CatalogueFile])
def test_every_collection_of_the_model_declares_its_largest_size(model: Any) -> None:
    assert list(undeclared(model_sizes(model))) == []


# Made by the test that uses it: each worker imports this module, and all together take a second.
HUGE: dict[str, Callable[[], dict[str, Any]]] = {
    "teams": lambda: {"teams": {f"t{i}": {"users": [f"u{i}"]} for i in range(MANY)}},
    "teams.red.users": lambda: {"teams": {"red": {"users": [f"u{i}" for i in range(MANY)]}}},
    "users": lambda: {"users": {f"!{i}": 1 for i in range(MANY)}},
    "partitions": lambda: {"partitions": {f"p{i}": {"teams": ["x"]} for i in range(MANY)}},
    "hosts": lambda: {"provider": "ssh", "hosts": [f"10.0.0.{i}" for i in range(MANY)]},
    "environments.x": lambda: {"environments": {"x": ["torch"] * MANY}},
    "": lambda: {f"f{i}": {} for i in range(MANY)},
    "unknown": lambda: {"unknown": [[]] * MANY},
    "slurm": lambda: {"slurm": {f"Key{i}": 1 for i in range(MANY)}},
}


@pytest.mark.parametrize("path", HUGE)
def test_a_collection_that_is_too_large_is_one_fault_and_its_entries_are_not_checked(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, looked = load_catalogue(), []
    copy = error_paths._Walker.copy

    def counted(*args: Any) -> object:
        looked.append(args[2])
        return copy(*args)

    monkeypatch.setattr(error_paths._Walker, "copy", counted)
    cluster, faults = check_cluster_file({**BASE, **HUGE[path]()}, catalogue, owner="ann")
    assert cluster is None
    assert [fault.message.split(",")[0] for fault in faults if fault.path == path] == [
        f"has {MANY + (3 if not path else 0)} entries"
    ]
    assert len(looked) < 50
