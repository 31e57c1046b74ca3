"""How the GPUs of nodes are divided now is read from slurm.conf, so that only a roll changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.render.slurm.hardware.gpu_parts_now import parts_now
from headway.render.slurm.slurm_conf import slurm_conf
from tests.support.clusters.render_cases import CPU, H100, gpu_cluster, site_of

HALVES = GpuParts(mig=lay_out(H100, {"3g.40gb": 2}))
MIXED = GpuParts(mig=lay_out(H100, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}))


def divided(parts: GpuParts) -> Cluster:
    cluster = gpu_cluster()
    return replace(cluster, groups=(replace(cluster.groups[0], parts=parts),))


@pytest.mark.parametrize("before", [WHOLE, HALVES, MIXED, GpuParts(shards=4), GpuParts(mps=True)])
@pytest.mark.parametrize("after", [WHOLE, HALVES, GpuParts(shards=8)])
def test_nodes_keep_their_division_until_they_are_rolled(before: GpuParts, after: GpuParts) -> None:
    old, new = divided(before), divided(after)
    text, site = slurm_conf(old, site_of(old)), site_of(new)
    names = new.slot_names[:3]
    found = parts_now(new, site, text, names)
    assert found == ({} if before == after else dict.fromkeys(names, before))
    # What is rendered with it leaves these nodes as they are, so Slurm ends no job.
    kept = slurm_conf(new, replace(site, parts_now=found))
    assert parts_now(new, site, kept, new.slot_names) == found


def test_other_gpus_and_unreadable_files_are_no_division() -> None:
    cluster = divided(HALVES)
    old = gpu_cluster()
    exchanged = replace(old, groups=(replace(old.groups[0], plan=replace(H100, gpu_type="a100", gpus=4)),))
    site = site_of(cluster)
    for text in ("", "NodeName=lab-1-1\nGarbage", slurm_conf(exchanged, site_of(exchanged))):
        assert parts_now(cluster, site, text, cluster.slot_names) == {}
    bare = replace(old, groups=(replace(old.groups[0], plan=CPU),))
    assert parts_now(bare, site_of(bare), slurm_conf(old, site_of(old)), bare.slot_names) == {}
