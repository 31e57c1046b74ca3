"""Each key of files that Headway writes itself has a verdict: gres.conf, acct_gather.conf, job_container.conf and others."""

from __future__ import annotations

import pytest

from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import imported, verdict


@pytest.mark.parametrize(
    ("file", "text", "key"),
    [
        ("acct_gather__conf", "EnergyIPMIFrequency=30\nEnergyIPMIUsername=admin\n", "EnergyIPMIFrequency"),
        ("job_container__conf", "AutoBasePath=true\nBasePath=/var/slurm/tmp Dirs=/tmp\n", "BasePath"),
        ("oci__conf", 'RunTimeQuery="runc state"\n', "RunTimeQuery"),
        ("helpers__conf", "Feature=nps1 Helper=/opt/nps\n", "Helper"),
    ],
)
def test_keys_of_other_files_are_named_with_a_remedy(file: str, text: str, key: str) -> None:
    site = imported(**{file: text})
    found = verdict(site, key)
    assert (found.kind, bool(found.why), bool(found.instead)) == (Kind.NOT_CARRIED, True, True)
    read = [item for item, _ in site.entries if item.file == file.replace("__", ".")]
    assert len(read) == sum(line.count("=") for line in text.splitlines())
    assert (site.faults, site.unread) == ([], {})


def test_gpus_are_carried_and_other_gres_are_named() -> None:
    site = imported(gres__conf="NodeName=n[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]\nName=license_disk Count=3\n")
    assert verdict(site, "Type").kind is Kind.CARRIED
    assert verdict(site, "File").kind is Kind.SAME
    assert verdict(site, "Count").kind is Kind.NOT_CARRIED


def test_cgroup_settings_are_those_of_headway_or_named() -> None:
    site = imported(cgroup__conf="ConstrainDevices=yes\nConstrainRAMSpace=yes\nMaxRAMPercent=80\n")
    assert [verdict(site, key).kind for key in ("ConstrainDevices", "ConstrainRAMSpace", "MaxRAMPercent")] == [
        Kind.SAME, Kind.SAME, Kind.NOT_CARRIED,
    ]  # fmt: skip
