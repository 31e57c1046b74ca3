"""Files that are very large, deeply nested or contain secrets are refused quickly, and errors repeat no secret."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file

CATALOGUE = load_catalogue({})
SECRET = "b3BlbnNzaC1rZXktdjEAAAAA"
TOP = {"name": "lab", "plan": "h100-8", "nodes": 4}


@pytest.mark.parametrize(
    "where", ["ssh_keys", "teams", "name", "plan", "mail", "hosts", "slurm", "partitions", "storage"]
)
def test_errors_never_repeat_private_key(where: str) -> None:
    private = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n"
    for value in (private, [private], {"relay": private}, {"x": private}, {"datasets": [{"name": private}]}):
        _, found = check_cluster_file({**TOP, where: value}, CATALOGUE, owner="ann")
        assert found
        assert SECRET not in "".join(map(str, found))
    _, found = check_cluster_file({**TOP, "ssh_keys": [private]}, CATALOGUE, owner="ann")
    assert "is a private key" in str(found[0])


def test_refuses_deeply_nested_or_oversized_values() -> None:
    deep: Any = []
    for _ in range(2000):
        deep = [deep]
    assert "nested too deeply" in str(check_cluster_file({**TOP, "slurm": deep}, CATALOGUE, owner="ann")[1][0])
    wide = {**TOP, "teams": {f"t{i}": {"users": ["x"] * 1000} for i in range(400)}}
    assert "too many values" in str(check_cluster_file(wide, CATALOGUE, owner="ann")[1][0])
    many = check_cluster_file({**TOP, "teams": {f"T{number}": {} for number in range(1000)}}, CATALOGUE, owner="ann")[1]
    assert len(many) == 201
    assert str(many[-1]) == "and 800 more faults; correct these first"


def test_many_warnings_refuse_no_file_and_hide_no_error() -> None:
    each = {"limits": {"running_jobs": 5, "submitted_jobs": 2}}  # a warning for each team
    warned = {**TOP, "teams": {f"t{number}": each for number in range(300)}}
    cluster, found = check_cluster_file(warned, CATALOGUE, owner="ann")
    assert cluster is not None
    assert (len(found), {fault.level for fault in found}, found[-1].message) == (
        201,
        {"warning"},
        "and 100 more warnings",
    )
    wrong = {**warned, "users": {"zoe": {}}}  # users come after teams in the file
    cluster, found = check_cluster_file(wrong, CATALOGUE, owner="ann")
    assert (cluster, [fault.path for fault in found if fault.level == "error"]) == (None, ["users.zoe"])


NAMES = [f"u{number:05}" for number in range(20_000)]


@pytest.mark.parametrize(
    "top",
    [
        {"teams": {"t": {"users": [*NAMES[:10_000], *NAMES[:10_000]]}}},
        {"teams": {"t": {"users": NAMES, "leads": [f"{name}y" for name in NAMES]}}},
        {"teams": {"t": {"users": NAMES}}, "users": {f"{name}z": {} for name in NAMES}},
        {"teams": {f"t{number}": {"users": [f"!{name}" for name in NAMES[:200]]} for number in range(500)}},
        {"partitions": {"p": {"preempts": [f"{name}y" for name in NAMES]}, "train": {}}},
        {"fabric": {"switches": [{"name": name, "nodes": 1} for name in NAMES]}},
        {f"k{name}": 1 for name in NAMES},
    ],
)
def test_large_files_are_checked_in_linear_time(top: dict[str, Any]) -> None:
    """Each of these took minutes: names that were looked for in lists, and a hint for each of thousands of faults."""
    began = time.process_time()
    assert check_cluster_file({**TOP, **top}, CATALOGUE, owner="ann")[1]
    assert time.process_time() - began < 10


def test_refuses_values_without_yaml_form() -> None:
    for value in (b"x", object(), (1, 2), {1: 2}, {"a", "b"}):
        cluster, found = check_cluster_file({**TOP, "slurm": value}, CATALOGUE, owner="ann")
        assert cluster is None
        assert found[0].path == "slurm"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("OverTimeLimit", "UNLIMITED"),
        ("OverTimeLimit", 5),
        ("DisableRootJobs", True),
        ("UnkillableStepTimeout", 100),
        ("MessageTimeout", 100),
        ("PriorityDecayHalfLife", "0-12:00:00"),
        ("RequeueExit", "0,100-199,209,255"),
    ],
)
def test_accepts_valid_slurm_conf_values(key: str, value: object) -> None:
    cluster, found = check_cluster_file({**TOP, "slurm": {key: value}}, CATALOGUE, owner="ann")
    assert found == []
    assert cluster is not None
    assert cluster.slurm == {key: "YES" if value is True else str(value)}
