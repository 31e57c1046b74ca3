"""Slurm versions that may follow each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.changes.versions import RELEASES, hop_fault
from tests import builders


def fault(old: str, new: str) -> str:
    cluster = builders.cluster(2)
    found = hop_fault(replace(cluster, slurm_version=old), replace(cluster, slurm_version=new))
    return found.message if found else ""


@pytest.mark.parametrize(
    ("old", "new"),
    [("24.11", "24.11"), ("22.05", "23.02"), ("22.05", "23.11"), ("23.02", "24.11"), ("24.05", "24.11")],
)
def test_supported_hops(old: str, new: str) -> None:
    assert fault(old, new) == ""


@pytest.mark.parametrize(("old", "new"), [("22.05", "24.11"), ("22.05", "24.05")])
def test_a_hop_over_too_many_releases_is_refused_with_those_it_reads(old: str, new: str) -> None:
    said = fault(old, new)
    assert f"not from {old}" in said
    assert RELEASES[RELEASES.index(new) - 1] in said


def test_there_is_no_way_back() -> None:
    assert "no way back" in fault("24.11", "22.05")
    assert "not known" in fault("24.11", "31.05")


def test_a_cluster_that_is_not_there_may_have_any() -> None:
    assert hop_fault(None, builders.cluster(2)) is None
