"""The agent's configuration."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from agent import config
from agent.checks import runner
from headway.render.system import agent_config
from tests.support.clusters.render_cases import gpu_cluster, site_of


def test_agent_reads_the_config_that_apply_writes(tmp_path: Path) -> None:
    cluster = gpu_cluster()
    place = tmp_path / "agent.json"
    place.write_text(agent_config.config(cluster, site_of(cluster), cluster.groups[0]))
    told = config.load_config(str(place))
    assert (told.head, told.simulated, told.oversubscribed_cpus, told.gpus) == ("10.87.3.10", True, True, 8)
    assert [(mount.path, mount.read_only) for mount in told.mounts] == [
        ("/home", False), ("/scratch", False), ("/datasets/tiny", True), ("/environments", True),
    ]  # fmt: skip
    assert told.kernel_log == agent_config.SIMULATED_LOG
    assert (runner.FOLDER, runner.UNFIT, runner.LOOKED) == ("/run/headway", "unfit", "looked")
    assert (agent_config.UNFIT, agent_config.LOOKED) == ("/run/headway/unfit", "/run/headway/looked")
    written = {*json.loads(place.read_text())}
    of_others = {
        "other_heads",
        "first",
        "first_head",
        "cluster",
        "state",
        "fabric",
        "driverless_gpus",
        "mig",
        "mps",
    }  # of heads, of machines one owns, and of nodes with MIG instances or MPS
    assert written == {field.name for field in fields(config.Config)} - of_others
