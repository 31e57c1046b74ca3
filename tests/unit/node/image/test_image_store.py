"""Stored images: whose files are trusted, imports, the registry, and how errors are explained."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

D = "sha256:" + "a" * 64


# ---- passwords


def write(home: Path, name: str, text: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- whom it trusts


def test_shared_image_is_used_only_if_root_alone_can_write_it(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime["image_store"]
    shared, name = tmp_path / "shared", f"sha256-{'a' * 64}.sqsh"
    write(shared, name, "x")
    kept = store.ImageStore(str(tmp_path / "own"), str(shared), {})
    root = {"uid": 0, "mode": 0o644}
    real = os.lstat

    def lstat(path: Any, **more: Any) -> os.stat_result:
        info = list(real(path, **more))
        info[0] = info[0] & ~0o777 | (root["mode"] if str(path).endswith(".sqsh") else 0o755)
        info[4] = root["uid"]
        return os.stat_result(info)

    monkeypatch.setattr(store.os, "lstat", lstat)
    assert kept.find(D) == str(shared / name)
    root["mode"] = 0o664
    assert kept.find(D) == ""
    root.update(uid=1000, mode=0o644)
    assert kept.find(D) == ""


def test_image_cache_is_private_and_must_belong_to_the_user(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = runtime["image_store"].ImageStore(str(tmp_path / "c"), "", {})
    kept._make_cache()
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(runtime["image_store"].os, "geteuid", lambda: 4711)
    with pytest.raises(runtime["messages"].Failed, match="not a folder that you own"):
        kept._make_cache()


def test_image_cache_in_a_folder_writable_by_others_is_refused(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch is everybody's: somebody may have made /scratch/root before root came by."""
    above = tmp_path / "root"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(runtime["messages"].Failed, match=f"other users can write to {above}"):
        runtime["image_store"].ImageStore(str(above / ".containers"), "", {})._make_cache()
    above.chmod(0o1777)  # scratch itself: nobody moves another's folder there
    runtime["image_store"].ImageStore(str(above / ".containers"), "", {})._make_cache()
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        info = list(real(path, **more))
        info[4] = 4711
        return os.stat_result(info)

    above.chmod(0o755)
    monkeypatch.setattr(runtime["image_store"].os, "stat", stat)
    with pytest.raises(runtime["messages"].Failed, match="other users can write to"):
        runtime["image_store"].ImageStore(str(above / ".containers"), "", {})._make_cache()


def test_squashfs_file_is_used_in_place_and_never_imported(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    file, environment = tmp_path / "x.img", {"HOME": str(tmp_path)}
    file.write_bytes(b"hsqs....")
    wanted, store = runtime["image_reference"].parse(str(file)), runtime["image_store"].ImageStore
    assert store(str(tmp_path), "", environment).squashfs(wanted) == str(file)
    with pytest.raises(runtime["messages"].Failed, match="needs no import"):
        store(str(tmp_path), "", environment, own=False).squashfs(wanted)


def layout(folder: Path, manifest: bytes, digest: str = "") -> str:
    """An OCI layout with this one manifest, under its digest or the one given; its digest."""
    config = b'{"architecture": "amd64", "config": {"WorkingDir": "/w"}}'
    own = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for data, name in ((config, hashlib.sha256(config).hexdigest()), (manifest, (digest or own)[7:])):
        write(folder / "blobs/sha256", name, data.decode())
    write(folder, "index.json", json.dumps({"manifests": [{"digest": digest or own}]}))
    return own


def test_image_copied_from_a_layout_must_match_its_digest(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a layout of somebody else's brings its own files under the digest of an image that is trusted."""
    store = runtime["image_store"]
    monkeypatch.setattr(store.platform, "machine", lambda: "x86_64")
    config = hashlib.sha256(b'{"architecture": "amd64", "config": {"WorkingDir": "/w"}}').hexdigest()
    manifest = json.dumps({"config": {"digest": f"sha256:{config}"}}).encode()
    kept = store.ImageStore(str(tmp_path / "cache"), "", {})
    copied: list[list[str]] = []

    def skopeo(_store: object, words: list[str], *_: object) -> bytes:
        copied.append(words)
        layout(tmp_path / "work/oci", manifest)  # skopeo names a copy by what it holds
        return b""

    monkeypatch.setattr(store.ImageStore, "_skopeo", skopeo)
    monkeypatch.setattr(store.ImageStore, "_run", lambda *_, **__: None)
    monkeypatch.setattr(store.os, "chmod", lambda *_: None)
    own = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    kept._build(str(tmp_path / "work"), "oci:/x:tag", "/x", "", str(tmp_path / "draft"), own)
    assert "--preserve-digests" in copied[0]
    with pytest.raises(runtime["messages"].Failed, match="/x does not hold what it says: sha256:aaaa"):
        kept._build(str(tmp_path / "work"), "oci:/x:tag", "/x", "", str(tmp_path / "draft"), D)


@pytest.mark.parametrize(
    "manifest", ["[]", "{}", '{"config": []}', '{"config": {"digest": 7}}', '{"config": {"digest": "sha256:00"}}', "\0"]
)
def test_invalid_image_manifest_is_refused(runtime: dict[str, ModuleType], tmp_path: Path, manifest: str) -> None:
    layout(tmp_path, manifest.encode())
    with pytest.raises(runtime["messages"].Failed, match="x can't be read as an image"):
        runtime["image_store"]._image_config(str(tmp_path), "x")
    write(tmp_path, "index.json", '{"manifests": []}')
    with pytest.raises(runtime["messages"].Failed, match="x can't be read as an image"):
        runtime["image_store"]._image_config(str(tmp_path), "x")


def test_fifo_as_image_file_is_refused_without_waiting(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.sqsh")
    with pytest.raises(runtime["messages"].Failed, match="is not a squashfs image"):
        runtime["image_store"].ImageStore(str(tmp_path), "", {})._file(
            runtime["image_reference"].Path(str(tmp_path / "x.sqsh"))
        )


def test_import_removes_leftovers_of_a_killed_import(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    kept = runtime["image_store"].ImageStore(str(tmp_path), "", {})
    for name in (f".new-{'a' * 64}-node-7", f".new-{'b' * 64}-node-8", ".asked-old", ".asked-new"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / ".asked-old", (0, 0))
    kept._sweep(D)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".asked-new", f".new-{'b' * 64}-node-8"]


def test_import_removes_signature_marks_of_images_that_are_gone(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    store = runtime["image_store"].ImageStore(str(tmp_path), "", {})
    kept = {f"sha256-{'b' * 64}.sqsh", f".verified-{'b' * 64}-key"}
    for name in (*kept, f".verified-{'a' * 64}-key", f".verified-{'c' * 64}-other"):
        (tmp_path / name).touch()
    store._sweep(D)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_all_nodes_of_a_step_use_the_same_image_digest(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, answers = runtime["image_store"], [D, "sha256:" + "b" * 64]
    monkeypatch.setattr(store.ImageStore, "_query_digest", lambda *_: answers.pop(0))
    tag = runtime["image_reference"].parse("r.test#x:1")
    one, two = (store.ImageStore(str(tmp_path), "", {}, step="7.0") for _ in range(2))
    assert one._digest(tag, "") == two._digest(tag, "") == D
    assert store.ImageStore(str(tmp_path), "", {}, step="7.1")._digest(tag, "") != D


def test_image_manifest_of_the_node_architecture_is_chosen(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime["image_store"]
    rows = [{"digest": f"sha256:{n}", "platform": {"architecture": name}} for n, name in enumerate(("arm64", "amd64"))]
    monkeypatch.setattr(store.platform, "machine", lambda: "x86_64")
    kept = store.ImageStore(str(tmp_path), "", {})
    assert kept._choose(json.dumps({"manifests": rows}).encode(), "x") == "sha256:1"
    windows = [{"digest": "sha256:w", "platform": {"architecture": "amd64", "os": "windows"}}]
    assert kept._choose(json.dumps({"manifests": [*windows, *rows]}).encode(), "x") == "sha256:1"
    for nonsense in ("[7]", "7", '[{"platform": 7}]'):
        with pytest.raises(runtime["messages"].Failed):
            kept._choose(f'{{"manifests": {nonsense}}}'.encode(), "x")
    monkeypatch.setattr(store.platform, "machine", lambda: "riscv64")
    with pytest.raises(runtime["messages"].Failed, match="is for amd64, arm64; this node is riscv64"):
        kept._choose(json.dumps({"manifests": rows}).encode(), "x")


# ---- what it says


@pytest.mark.parametrize(
    ("text", "known", "words"),
    [
        ("reading manifest 1 in r.test/x: manifest unknown", True, "there is no image r.test/x"),
        ("unauthorized: authentication required", True, "refuses your user name and password"),
        ("unauthorized: authentication required", False, "requires a password and you have none"),
        ("Get https://r.test/v2/: x509: certificate signed by unknown authority", False, "is not trusted"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", False, "can't be reached"),
        ("server gave HTTP response to HTTPS client", False, "does not use TLS"),
        ("write /tmp/x: no space left on device", False, "the disk is full"),
        ('level=fatal msg="something else"', False, "can't be fetched: something else"),
        (
            'docker://r.test:4043/x: Get "https://r.test:4043/v2/": dial tcp 1.2.3.4:4043: connect: connection refused',
            True,
            "can't be reached",
        ),
        ('level=fatal msg="parsing x@sha256:9f404e 404 times: odd"', True, "can't be fetched"),
        ("received unexpected HTTP status: 404 Not Found", True, "there is no image r.test/x"),
        ("invalid status code from registry 404 (Not Found)", True, "there is no image r.test/x"),
        (
            'exec: "docker-credential-desktop": executable file not found in $PATH',
            True,
            "kept by docker-credential-desktop",
        ),
        ('level=fatal msg="writing blob: mkdir /tmp/x: permission denied"', True, "can't be fetched: writing blob"),
        ("denied: requested access to the resource is denied", True, "refuses your user name and password"),
        ("denied: Permission denied for resource", True, "refuses your user name and password"),
        ("reading manifest 1 in r.test/timeout: unauthorized", True, "refuses your user name and password"),
    ],
)
def test_registry_errors_are_explained_with_a_hint(
    runtime: dict[str, ModuleType], text: str, known: bool, words: str
) -> None:
    said = runtime["image_store"]._registry_error("r.test/x:1", text, known, "/home/a")
    assert words in said.message
    assert said.hint


def test_credentials_for_other_registries_do_not_count_as_a_password(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime["image_store"]
    auth = write(
        tmp_path, ".docker/config.json", '{"auths": {"ghcr.io": {"auth": "eDp5"}}, "credHelpers": {"q.test": "pass"}}'
    )
    refused = subprocess.CompletedProcess([], 1, b"", b"unauthorized: authentication required")
    monkeypatch.setattr(store.subprocess, "run", lambda *_, **__: refused)
    kept = store.ImageStore(str(tmp_path), "", {"HOME": str(tmp_path)})
    for host, words in (("nvcr.io", "you have none"), ("ghcr.io", "refuses"), ("q.test", "refuses")):
        with pytest.raises(runtime["messages"].Failed, match=words):
            kept._skopeo(["inspect"], f"{host}/x:1", str(auth))
