"""Hosts come from what OpenTofu and Terraform print and store; each fault names the field and the next step."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.errors import InvalidSpec
from headway.sdk import hosts_source
from headway.sdk.cluster_file import load_document
from headway.sdk.hosts_source import read_hosts

HOSTS = [
    {"address": "192.0.2.1", "role": "head", "port": None},
    {"address": "192.0.2.2", "user": "ubuntu", "role": None},
]
READ = [{"address": "192.0.2.1", "role": "head"}, {"address": "192.0.2.2", "user": "ubuntu"}]


def outputs(**values: Any) -> dict[str, Any]:
    """Returns outputs in the form of `tofu output -json`, which state files have too."""
    return {name: {"sensitive": False, "type": "dynamic", "value": value} for name, value in values.items()}


def printing(text: str) -> str:
    """Returns a command line that prints the text."""
    return shlex.join([sys.executable, "-c", f"print({text!r})"])


def refusal(source: dict[str, Any], folder: Path) -> str:
    with pytest.raises(InvalidSpec) as caught:
        read_hosts(source, folder, folder)
    return "; ".join(f"{fault.path}: {fault.message} ({fault.hint})" for fault in caught.value.faults)


@pytest.mark.parametrize(
    "printed", [HOSTS, outputs(hosts=HOSTS, region="eu"), {"version": 4, "outputs": outputs(hosts=HOSTS)}]
)
def test_hosts_come_from_a_command_or_a_state_file(tmp_path: Path, printed: Any) -> None:
    text = json.dumps(printed)
    assert read_hosts({"from": printing(text)}, tmp_path, tmp_path) == READ
    (tmp_path / "terraform.tfstate").write_text(text)
    assert read_hosts({"file": "terraform.tfstate"}, tmp_path, Path("/nowhere")) == READ
    assert read_hosts({"file": "~/terraform.tfstate"}, Path("/nowhere"), tmp_path) == READ


def test_named_output_with_plain_addresses(tmp_path: Path) -> None:
    text = json.dumps(outputs(nodes=["192.0.2.7"], hosts=["192.0.2.8"]))
    assert read_hosts({"from": printing(text), "output": "nodes"}, tmp_path, tmp_path) == ["192.0.2.7"]


def test_document_has_the_list_with_absolute_key_files(tmp_path: Path) -> None:
    state = {"outputs": outputs(hosts=[{"address": "192.0.2.1", "key": "./id"}])}
    (tmp_path / "terraform.tfstate").write_text(json.dumps(state))
    file = tmp_path / "cluster.yaml"
    file.write_text("name: lab\nprovider: ssh\nhosts: {file: terraform.tfstate}\n")
    document = load_document(file, config_dir=tmp_path / "config", home=tmp_path)
    assert document.spec["hosts"] == [{"address": "192.0.2.1", "key": str(tmp_path / "id")}]
    assert document.text == file.read_text()


def test_command_runs_in_the_folder_of_the_cluster_file_and_without_a_shell(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text('["192.0.2.1"]')
    assert read_hosts({"from": "cat hosts.json"}, tmp_path, tmp_path) == ["192.0.2.1"]
    assert "cat" in refusal({"from": "cat hosts.json; touch made"}, tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({}, "hosts: needs either from or file"),
        ({"from": "true", "file": "x"}, "hosts: needs either from or file"),
        ({"form": "true"}, "hosts.form: "),
        ({"from": "tofu 'output"}, 'hosts.from: "tofu \'output" is not a command line'),
        ({"from": " "}, "hosts.from: names no command"),
        ({"from": "no-such-tofu output"}, "hosts.from: no-such-tofu is not installed here"),
        ({"from": "sh -c 'echo no state >&2; exit 3'"}, "failed with exit status 3: no state (run it in "),
        (
            {"from": "echo hosts = 1"},
            "hosts.from: echo hosts = 1 gives no JSON: 'hosts = 1' (add -json to tofu output)",
        ),
        ({"from": "echo {}"}, "has no output 'hosts'; it has no outputs (add output \"hosts\""),
        ({"from": printing(json.dumps(outputs(ips=[])))}, "its outputs are ips"),
        ({"from": printing(json.dumps(outputs(hosts="x")))}, "is no list"),
        ({"from": "echo []"}, "lists no machine (create machines first: tofu apply)"),
        ({"file": "terraform.tfstate"}, "terraform.tfstate does not exist (run tofu apply first"),
        ({"file": "."}, "can't be read"),
        ({"from": printing('{"encrypted_data": "x"}')}, "is encrypted"),
    ],
)
def test_each_fault_names_field_and_next_step(tmp_path: Path, source: dict[str, Any], says: str) -> None:
    assert says in refusal(source, tmp_path)


def test_command_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_source, "COMMAND_S", 0.2)
    assert "did not end within" in refusal({"from": "sleep 600"}, tmp_path)


def test_command_that_prints_more_than_any_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_source, "LARGEST_STATE", 2**20)
    assert "prints more than 1 MiB" in refusal({"from": f"head -c {2**20 + 1} /dev/zero"}, tmp_path)


def test_larger_file_than_any_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_source, "LARGEST_STATE", 2**20)
    with (tmp_path / "state").open("wb") as file:
        file.truncate(2**20 + 1)
    assert "larger than 1 MiB" in refusal({"file": "state"}, tmp_path)
