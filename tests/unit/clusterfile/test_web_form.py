"""The form for a new cluster round-trips through a cluster file and shows errors at their fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.clusterfile import web_form
from headway.clusterfile.field_lines import field_lines, line_of
from headway.clusterfile.starter_file import starting_file
from headway.validation.yaml_parser import dump_yaml, parse_yaml

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKlm alice"


def filled() -> web_form.Form:
    return replace(
        web_form.new_form("lab"),
        ssh_keys=KEY,
        datasets=(web_form.DatasetRow("tiny", "/data/tiny"), web_form.DatasetRow("logs", "/data/logs", True)),
        teams=(web_form.TeamRow("vision", "alice bob", "60"), web_form.TeamRow("speech", "carol", "")),
        user_keys=f"alice {KEY}",
    )


def test_form_round_trips_through_cluster_file() -> None:
    spec = web_form.apply_form(filled(), {})
    assert web_form.form_from_spec(parse_yaml(dump_yaml(spec))) == filled()


def test_form_shows_starting_file_except_partitions() -> None:
    assert web_form.form_from_spec(parse_yaml(starting_file("lab"))).kept == ("partitions",)


def test_form_keeps_fields_it_does_not_show() -> None:
    spec = {
        "name": "lab",
        "plan": "h100-8",
        "nodes": 4,
        "teams": {"vision": {"users": ["alice"], "limits": {"gpus": 8}}},
        "partitions": {"train": {"max_time": "02:00:00"}},
        "fabric": {"switches": [{"name": "leaf1", "nodes": 4}]},
    }
    shown = web_form.form_from_spec(spec)
    assert shown.kept == ("partitions", "fabric.switches", "teams.vision.limits")
    changed = web_form.apply_form(replace(shown, nodes="6"), spec)
    assert changed == {**spec, "nodes": 6}


def test_form_drops_empty_fields_and_keeps_invalid_values() -> None:
    spec = web_form.apply_form(replace(filled(), spares="", nodes="many", teams=()), web_form.apply_form(filled(), {}))
    assert "spares" not in spec
    assert "teams" not in spec
    assert spec["nodes"] == "many"


def test_form_parses_posted_fields() -> None:
    sent = {
        "name": ["lab"], "plan": ["h100-8"], "nodes": ["4"], "spares": ["1"], "leaf_size": ["4"], "provider": ["local"],
        "image": ["debian13"], "ssh_keys": [f"{KEY}\r\n"], "user_keys": [f"alice {KEY}"],
        "team-0-name": ["vision"], "team-0-users": ["alice, bob"], "team-0-share": ["60"], "team-3-name": ["speech"],
        "team-3-users": ["carol"], "team-7-name": [""], "dataset-0-name": ["tiny"], "dataset-0-path": ["/data/tiny"],
        "dataset-1-name": ["logs"], "dataset-1-path": ["/data/logs"], "dataset-1-writable": ["on"],
    }  # fmt: skip
    assert web_form.form_from_fields(sent) == filled()


@pytest.mark.parametrize("text", ["02:00:00", "1e3", "no", "true", "12", "~", "a: b", "- x", "é", "", "0x10", "1_000"])
def test_yaml_strings_round_trip(text: str) -> None:
    assert parse_yaml(dump_yaml({"a": text, "b": [text]})) == {"a": text, "b": [text]}


def test_field_paths_map_to_file_lines() -> None:
    text = "name: lab\nnodes: 0\nteams:\n  vision:\n    users: [alice,\n      Bob!]\n"
    lines = field_lines(text)
    assert line_of("nodes", lines) == 2
    assert line_of("teams.vision.users[1]", lines) == 6
    assert line_of("teams.vision.limits.gpus", lines) == 4, "what is missing stands in what it is missing from"
    assert line_of("plan", lines) == 0
    assert line_of("line 3", {}) == 3
