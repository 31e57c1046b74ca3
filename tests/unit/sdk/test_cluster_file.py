"""The SDK inlines keys, paths and the catalogue into a cluster file, finds its server, and raises the server's error
classes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headway.errors import (
    InvalidSpec,
    NotFound,
    Refused,
)
from headway.sdk.cluster_file import load_document, private_key_file
from headway.validation.ssh_keys import key_fault

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8m1yvDOZ1uJ7m4w1Jb3m5b1m4w1Jb3m5b1m4w1Jb3m ann"


def write(folder: Path, text: str) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


def test_document_inlines_ssh_keys_and_makes_paths_absolute(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/one.pub").write_text(f"# mine\n{KEY}\n\n{KEY}2\n")
    (tmp_path / "bob.pub").write_text(KEY + "\n")
    file = write(
        tmp_path,
        f"name: lab\nssh_keys: [~/.ssh/one.pub, '{KEY}']\nusers:\n  bob: {{ssh_keys: [./bob.pub]}}\n"
        "storage:\n  datasets: [{name: tiny, path: ../data/tiny}, {name: abs, path: /srv/x}]\n",
    )
    document = load_document(file, config_dir=tmp_path / "config", home=home)
    assert document.spec["ssh_keys"] == [KEY, f"{KEY}2", KEY]
    assert document.spec["users"]["bob"]["ssh_keys"] == [KEY]
    paths = [d["path"] for d in document.spec["storage"]["datasets"]]
    assert paths == [str(tmp_path.parent / "data/tiny"), "/srv/x"]
    assert document.text == file.read_text()


def test_scripts_of_the_site_are_inlined_and_faulty_files_named(tmp_path: Path) -> None:
    (tmp_path / "prolog.d").mkdir()
    (tmp_path / "prolog.d/10-mounts.sh").write_text("#!/bin/sh\ntrue\n")
    (tmp_path / "job_submit.lua").write_text("return slurm.SUCCESS\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "key.sh").write_text("#!/bin/sh\n# BEGIN PRIVATE KEY\n")
    (tmp_path / "large").write_text("#" * 70_000)
    load = {"config_dir": tmp_path / "config", "home": tmp_path}
    text = "name: lab\nscripts: {prolog: [prolog.d/10-mounts.sh], job_submit: job_submit.lua}\n"
    assert load_document(write(tmp_path, text), **load).spec["scripts"] == {
        "prolog": [{"name": "10-mounts.sh", "text": "#!/bin/sh\ntrue\n"}],
        "job_submit": {"name": "job_submit.lua", "text": "return slurm.SUCCESS\n"},
    }
    for name, says in {
        "lost.sh": "lost.sh can't be read: No such file or directory",
        "binary": "binary is not text",
        "key.sh": "key.sh contains a private key",
        "large": "large is larger than 64 KiB",
    }.items():
        with pytest.raises(InvalidSpec) as caught:
            load_document(write(tmp_path, f"name: lab\nscripts: {{epilog: [{name}]}}\n"), **load)
        assert [(fault.path, says in fault.message) for fault in caught.value.faults] == [("scripts.epilog[0]", True)]


def test_keys_for_signatures_of_images_are_inlined_and_missing_files_named(tmp_path: Path) -> None:
    pem = "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n"
    (tmp_path / "team.pub").write_text(pem)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "both").write_text(pem + pem.replace("PUBLIC", "PRIVATE"))
    text = "name: lab\ncontainers:\n  signatures:\n    registries:\n      r.test/team: {sigstore_key: %s}\n"
    load = {"config_dir": tmp_path / "config", "home": tmp_path}
    document = load_document(write(tmp_path, text % "./team.pub"), **load)
    assert document.spec["containers"]["signatures"]["registries"]["r.test/team"]["sigstore_key"] == pem
    refused = {
        "lost.pub": "lost.pub does not exist", "binary": "binary is not a public key", "both": "both contains a private key"
    }  # fmt: skip
    for name, says in refused.items():
        with pytest.raises(InvalidSpec) as caught:
            load_document(write(tmp_path, text % name), **load)
        assert [fault.path for fault in caught.value.faults] == [
            'containers.signatures.registries."r.test/team".sigstore_key'
        ]
        assert says in str(caught.value)
    for value in ("7", "{a: b}", '""'):  # for the server to refuse
        load_document(write(tmp_path, text % value), **load)


def test_own_ssh_key_is_used_or_generated_once(tmp_path: Path) -> None:
    file = write(tmp_path, "name: lab\n")
    config, home = tmp_path / "config", tmp_path / "home"
    made = load_document(file, config_dir=config, home=home).spec["ssh_keys"]
    assert key_fault(made[0]) == ("", "")
    assert (config / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert load_document(file, config_dir=config, home=home).spec["ssh_keys"] == made
    assert private_key_file(config, home) == config / "id_ed25519"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("private")
    (home / ".ssh/id_ed25519.pub").write_text(KEY)
    assert load_document(file, config_dir=config, home=home).spec["ssh_keys"] == [KEY]


def test_reports_all_missing_and_wrong_key_files_at_once(tmp_path: Path) -> None:
    private = tmp_path / "id"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecretsecret\n")
    file = write(tmp_path, "name: lab\nssh_keys: [./none.pub, ./id]\nusers: {bob: {ssh_keys: [./no.pub]}}\n")
    with pytest.raises(InvalidSpec) as caught:
        load_document(file, config_dir=tmp_path, home=tmp_path)
    assert [fault.path for fault in caught.value.faults] == ["ssh_keys[0]", "ssh_keys[1]", "users.bob.ssh_keys[0]"]
    assert "secretsecret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["ssh_keys: 5", "storage: []", "users: [a]", "storage: {datasets: {a: 1}}", "hosts: x"]
)
def test_malformed_fields_are_left_for_server_validation(tmp_path: Path, text: str) -> None:
    document = load_document(write(tmp_path, f"name: lab\n{text}\n"), config_dir=tmp_path, home=tmp_path)
    assert text.partition(":")[0] in document.spec


@pytest.mark.parametrize("text", ["", "\n", "# mine-8: {gpus: 8}\n", "---\n# none yet\n", "~\n"])
def test_empty_catalogue_file_gives_no_plans(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalogue.yaml").write_text(text)
    assert load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path).catalogue == {}


@pytest.mark.parametrize("text", ["a: [\n", "- a\n", "text\n", "a: 1\na: 2\n"])
def test_catalogue_errors_name_catalogue_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalogue.yaml").write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path)
    assert caught.value.message.startswith(f"your catalogue {tmp_path / 'catalogue.yaml'} has 1 fault:\n  line ")
    assert "cluster file" not in caught.value.message


def test_document_includes_user_catalogue(tmp_path: Path) -> None:
    (tmp_path / "catalogue.yaml").write_text("mine-8: {gpus: 8, cpus: 4, memory_mib: 4096}\n")
    document = load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path)
    assert document.catalogue == {"mine-8": {"gpus": 8, "cpus": 4, "memory_mib": 4096}}


def test_unreadable_cluster_file_errors_are_helpful(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="headway init"):
        load_document(tmp_path / "none.yaml")
    with pytest.raises(Refused, match="folder"):
        load_document(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec):
        load_document(tmp_path / "binary")
    with pytest.raises(InvalidSpec, match="larger than 4 MiB"):
        load_document("/dev/zero")  # has no end
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="pipe without a writer"):
        load_document(tmp_path / "pipe")


def test_reads_cluster_file_from_pipe(tmp_path: Path) -> None:
    ours, theirs = os.pipe()

    def write() -> None:
        os.write(theirs, b"name: lab\n")
        os.close(theirs)

    asked = threading.Timer(0.05, write)
    asked.start()
    try:
        assert load_document(f"/proc/self/fd/{ours}", config_dir=tmp_path, home=tmp_path).text == "name: lab\n"
    finally:
        asked.join()
        os.close(ours)


def test_catalogue_of_the_folder_of_the_file_comes_first(tmp_path: Path) -> None:
    config, folder = tmp_path / "config", tmp_path / "site"
    config.mkdir()
    folder.mkdir()
    (config / "catalogue.yaml").write_text("one: {cpus: 4, memory_mib: 4096}\ntwo: {cpus: 4, memory_mib: 4096}\n")
    (folder / "catalogue.yaml").write_text("two: {cpus: 8, memory_mib: 8192}\n")
    document = load_document(write(folder, "name: lab\n"), config_dir=config, home=tmp_path)
    assert document.catalogue == {"one": {"cpus": 4, "memory_mib": 4096}, "two": {"cpus": 8, "memory_mib": 8192}}
