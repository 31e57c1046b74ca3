"""The files of a replay: those of the cluster, with the replay's own addresses and programs."""

from __future__ import annotations

import pytest

from headway.errors import Refused
from headway.render.slurm.conf_syntax import parse_lines, settings
from headway.whatif.slurm_files import replay_files
from tests.unit.whatif.clusters import lab


def test_what_decides_about_starts_is_that_of_the_cluster() -> None:
    files = replay_files(lab(slurm={"PriorityWeightAge": "77"}))
    lines = parse_lines(files.files["etc/slurm.conf"])
    keys = {key.lower(): value for key, value in settings(lines).items()}
    assert keys["priorityweightage"] == "77"
    assert keys["selecttype"] == "select/cons_tres"
    assert "bf_interval=10" in keys["schedulerparameters"]
    assert keys["authtype"] == "auth/none"
    assert keys["statesavelocation"].startswith("/run/")
    assert not {"prolog", "epilog", "authalttypes", "resumeprogram"} & set(keys)
    nodes = [line for line in lines if line.first == "nodename"]
    assert {line.get("NodeAddr") for line in nodes} == {"127.0.0.1"}
    assert any(line.first == "partitionname" for line in lines)


def test_no_secret_is_needed_and_all_users_exist() -> None:
    files = replay_files(lab())
    assert set(files.uids) >= {"alice", "vera", "sam"}
    assert "alice:x:" in files.files["passwd"]
    assert "vision" in files.files["accounts.sh"]
    assert "AuthAltTypes" not in files.files["etc/slurmdbd.conf"]


def test_spares_and_slots_without_a_machine_take_no_jobs() -> None:
    cluster = lab(nodes=3, max=5, spares=1)
    assert replay_files(cluster).absent.count(",") == 0
    assert replay_files(lab()).absent == ""
    assert len(cluster.slot_names) == 6


def test_another_version_of_slurm_is_refused() -> None:
    with pytest.raises(Refused, match=r"replays with Slurm 24\.11"):
        replay_files(lab(image="debian12"))
