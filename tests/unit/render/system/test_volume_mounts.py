"""Volumes become mount units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.storage.folders import StorageFolders, Volume
from headway.render.system import volume_mounts
from tests.support.clusters import builders

MODELS = Volume("models", "/models", "nfs4", "filer:/export/models", ("rw", "hard"))


def test_volume_becomes_a_mount_unit_that_blocks_no_other_unit() -> None:
    cluster = replace(builders.cluster(2), storage=StorageFolders(volumes=(MODELS,)))
    unit = volume_mounts.mount_units(cluster, builders.site(cluster), head=False)["models.mount"]
    assert "What=filer:/export/models\nWhere=/models\nType=nfs4\nOptions=rw,hard,nosuid,nodev\n" in unit
    assert "LazyUnmount=yes" in unit
    assert "RequiresMountsFor" not in unit
    assert volume_mounts.volume_units(cluster) == {"models.mount": "/models"}


@pytest.mark.parametrize(
    ("where", "unit"),
    [
        ("/datasets/tiny", "datasets-tiny"),
        ("/data/my-set", "data-my\\x2dset"),
        ("/.hidden", "\\x2ehidden"),
        ("/ä", "\\xc3\\xa4"),
    ],
)
def test_mount_unit_names_follow_systemd_escaping(where: str, unit: str) -> None:
    assert volume_mounts.unit_name(where) == f"{unit}.mount"
