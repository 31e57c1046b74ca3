"""slurm.conf."""

from __future__ import annotations

from dataclasses import replace

from headway.catalog.providers import AWS, SSH
from headway.render.slurm import conf_syntax
from tests.support.clusters.render_cases import gpu_cluster, slurm_conf

GPU = gpu_cluster()


def test_cluster_file_keys_override_defaults_case_insensitively() -> None:
    keys = [key.lower() for line in conf_syntax.parse_lines(slurm_conf(GPU)) for key, _ in line.pairs]
    assert keys.count("priorityweightage") == 1
    found = conf_syntax.settings(conf_syntax.parse_lines(slurm_conf(GPU)))
    assert found["priorityweightage"] == "2000"
    assert found["maxstepcount"] == "50000"


def test_unkillable_step_timeout_is_at_least_five_message_timeouts() -> None:
    """slurmctld says "error:" to less, and a candidate with errors is not taken up."""
    for said, least in ((None, 120), ("24", 120), ("25", 125), ("100", 500)):
        cluster = replace(GPU, slurm={} if said is None else {"MessageTimeout": said})
        assert conf_syntax.settings(conf_syntax.parse_lines(slurm_conf(cluster)))["unkillablesteptimeout"] == str(least)


def test_addresses_of_rented_machines_are_looked_up_each_time() -> None:
    """Another machine in a slot may have another address, which Slurm would not notice."""
    for provider, words in ((AWS, "block_null_hash,NoAddrCache"), (SSH, "block_null_hash")):
        text = slurm_conf(replace(GPU, provider=provider))
        assert conf_syntax.settings(conf_syntax.parse_lines(text))["communicationparameters"] == words
