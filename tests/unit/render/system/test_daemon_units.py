"""Units of Slurm's daemons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.providers import AWS, LOCAL
from headway.domain.provider_traits import ProviderTraits
from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_slurm_daemons_are_protected_from_oom_killer() -> None:
    rendered = render_files(GPU, site_of(GPU))
    for role, name in (("node", "slurmd"), ("node", "munge"), ("head", "munge"), ("head", "slurmctld")):
        text = rendered[role][f"/etc/systemd/system/{name}.service.d/headway.conf"].text
        assert "OOMScoreAdjust=-9" in text, (role, name)


@pytest.mark.parametrize(("provider", "idle_s", "reports"), [(LOCAL, 60, True), (AWS, 60, True), (AWS, None, False)])
def test_first_slurmd_of_a_machine_made_on_demand_reports_a_boot(
    provider: ProviderTraits, idle_s: int | None, *, reports: bool
) -> None:
    """Slurm would ignore a rented machine that booted before the request for it: for an earlier job, for example."""
    cluster = replace(GPU, provider=provider, groups=(replace(GPU.groups[0], idle_s=idle_s),))
    text = render_files(cluster, site_of(cluster))["node"]["/etc/systemd/system/slurmd.service.d/headway.conf"].text
    assert ("|| echo -b" in text) is reports
