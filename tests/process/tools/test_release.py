"""A release is built from the commit alone, byte by byte the same each time, and its provenance and sums are right."""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from headway.signed_statement import signed_message

ROOT = Path(__file__).resolve().parents[3]
MODULES = ("assets", "docs", "release", "sbom")
WHEEL, SDIST = "headway-0.1.0-py3-none-any.whl", "headway-0.1.0.tar.gz"


@pytest.fixture(scope="module")
def release() -> Iterator[ModuleType]:
    """The module, as `python tools/release.py` imports it."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("release")
    finally:
        sys.path.remove(str(ROOT / "tools"))
        for name in MODULES:
            sys.modules.pop(name, None)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository with the packaging rules of this one."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", ".gitignore", "requirements/mlflow.txt", "src/headway/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "node").mkdir()
    (folder / "node/program.sh").write_text("#!/bin/sh\n")
    (folder / "node/program.sh").chmod(0o755)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one", "--date=2026-01-02T03:04:05Z")
    return folder


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Browser libraries and a documentation site."""
    folder = tmp_path_factory.mktemp("static")
    for name in ("vendor", "docs"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    return folder / "vendor", folder / "docs"


def test_two_builds_of_a_commit_are_the_same_byte_by_byte(
    release: ModuleType, checkout: Path, static: tuple[Path, Path], tmp_path: Path
) -> None:
    """Also if other folders, file times and masks of the builder differ."""
    commit = release.present_commit(checkout)
    built = []
    for number, umask in enumerate((0o022, 0o077)):
        source, before = tmp_path / f"place{number}" / "source", os.umask(umask)
        try:
            release.export(commit, source, static, checkout)
            for path in source.rglob("*"):
                os.utime(path, (number * 1_000_000_000, number * 1_000_000_000))
            built.append(release.build(source, tmp_path / f"built{number}", commit))
        finally:
            os.umask(before)
    assert set(built[0]) == {WHEEL, SDIST}
    assert built[0] == built[1]
    other = release.Commit(commit.digest, commit.time + 86400)
    assert release.build(source, tmp_path / "other", other)[WHEEL] != built[0][WHEEL], "the time is that of the commit"


def test_both_packages_contain_browser_libraries_and_programs_of_nodes(
    release: ModuleType, checkout: Path, static: tuple[Path, Path], tmp_path: Path
) -> None:
    commit = release.present_commit(checkout)
    release.export(commit, tmp_path / "source", static, checkout)
    (checkout / "node/untracked").write_text("x")
    try:
        built = release.build(tmp_path / "source", tmp_path / "built", commit)
    finally:
        (checkout / "node/untracked").unlink()
    with zipfile.ZipFile(io.BytesIO(built[WHEEL])) as wheel:
        names = set(wheel.namelist())
        assert {"headway/web/static/vendor/file", "headway/web/static/docs/file", "headway/_node/program.sh"} <= names
        assert wheel.getinfo("headway/_node/program.sh").external_attr >> 16 & 0o777 == 0o755
        assert wheel.getinfo("headway/__init__.py").date_time[:1] >= (2026,)
    with tarfile.open(fileobj=io.BytesIO(built[SDIST])) as sdist:
        found = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"src/headway/web/static/vendor/file", "src/headway/web/static/docs/file", "node/program.sh"} <= found
    assert "node/untracked" not in found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "vendor").mkdir()
    return tmp_path


def test_documentation_site_is_built_twice_and_compared(
    release: ModuleType, checkout: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, pages = release.present_commit(checkout), ["page", "page", "page at 12:00", "page at 12:01"]

    def build_site(target: Path) -> None:
        target.mkdir()
        (target / "index.html").write_text(pages.pop(0))

    monkeypatch.setattr(release, "build_site", build_site)
    assert set(release.build_twice(commit, work / "one", work / "vendor", checkout)) == {WHEEL, SDIST}
    with pytest.raises(release.ReleaseError, match="not reproducible"):
        release.build_twice(commit, work / "other", work / "vendor", checkout)
    assert pages == []


def test_folder_of_somebody_else_is_neither_emptied_nor_written_to(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> dict[str, bytes]:
        raise AssertionError("it is refused before the build")

    monkeypatch.setattr(release, "release", build)
    (tmp_path / "thesis.tex").write_text("years")
    sums = hashlib.sha256(b"years").hexdigest() + "  thesis.tex\n"
    for listing in ("", sums):
        if listing:
            (tmp_path / "SHA256SUMS").write_text(listing)
        assert release.main(["--output", str(tmp_path)]) == 1
        said = capsys.readouterr().err
        assert f"release: {tmp_path} contains " in said
        assert "give another folder: --output FOLDER" in said
    assert (tmp_path / "thesis.tex").read_text() == "years"
    assert release.main(["--output", str(tmp_path / "thesis.tex")]) == 1
    assert "thesis.tex can't be used: Not a directory" in capsys.readouterr().err


def test_earlier_release_in_the_folder_is_replaced(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit, key = release.Commit("a" * 40, 0), ec.generate_private_key(ec.SECP256R1())
    first = release.described({WHEEL: b"wheel", "old.whl": b"old"}, commit, key, release.LOCAL_BUILDER)
    then = release.described({WHEEL: b"new wheel"}, commit, None, release.LOCAL_BUILDER)
    for files in (first, then):
        monkeypatch.setattr(release, "release", lambda *_, files=files: files)
        assert release.main(["--output", str(tmp_path / "dist")]) == 0
        assert {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()} == files
    assert f"{hashlib.sha256(b'new wheel').hexdigest()}  {WHEEL}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device", "/tmp/x"), subprocess.TimeoutExpired(["mkdocs"], 600)]
)
def test_failed_build_is_one_sentence(
    release: ModuleType, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def build(*_: object) -> dict[str, bytes]:
        raise error

    monkeypatch.setattr(release, "release", build)
    assert release.main(["--output", str(tmp_path / "dist")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("release: the build stopped: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "dist").exists()


def test_changed_checkout_is_refused(release: ModuleType, checkout: Path) -> None:
    (checkout / "node/untracked").write_text("x")
    try:
        with pytest.raises(release.ReleaseError, match="differs from its commit, first node/untracked"):
            release.present_commit(checkout)
    finally:
        (checkout / "node/untracked").unlink()


def test_provenance_names_files_commit_and_locks(release: ModuleType) -> None:
    commit = release.Commit("a" * 40, 1_767_323_045)
    assert commit.timestamp == "2026-01-02T03:04:05+00:00"
    stated = release.statement({WHEEL: b"wheel"}, commit, "https://ci.example.org", "git+https://example.org/headway")
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["predicateType"] == "https://slsa.dev/provenance/v1"
    assert stated["subject"] == [{"name": WHEEL, "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}]
    definition = stated["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["commit"] == "a" * 40
    needs = {row["name"]: row for row in definition["resolvedDependencies"]}
    assert needs["source"]["digest"] == {"gitCommit": "a" * 40}
    assert needs["source"]["uri"] == "git+https://example.org/headway"
    lock = hashlib.sha256((ROOT / "requirements/constraints.txt").read_bytes()).hexdigest()
    assert needs["requirements/constraints.txt"]["digest"] == {"sha256": lock}
    assert stated["predicate"]["runDetails"]["builder"]["id"] == "https://ci.example.org"
    plain = release.statement({}, commit, release.LOCAL_BUILDER)
    assert "uri" not in plain["predicate"]["buildDefinition"]["resolvedDependencies"][0]


def test_sums_and_signatures_verify_with_common_programs(release: ModuleType, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    commit = release.Commit("a" * 40, 0)
    found = release.described({WHEEL: b"wheel", SDIST: b"sdist"}, commit, key, release.LOCAL_BUILDER)
    for name, content in found.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "key.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    verify = ["openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "SHA256SUMS.sig", "SHA256SUMS"]
    for argv in (check, verify):
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    (tmp_path / WHEEL).write_bytes(b"changed")
    (tmp_path / "SHA256SUMS").write_bytes(found["SHA256SUMS"] + b"x")
    for argv in (check, verify):
        assert subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, check=False).returncode != 0

    signed = json.loads(found["headway-0.1.0.intoto.jsonl"])
    payload, signature = base64.b64decode(signed["payload"]), base64.b64decode(signed["signatures"][0]["sig"])
    assert json.loads(payload)["subject"][0]["name"] == WHEEL
    key.public_key().verify(signature, signed_message(payload), ec.ECDSA(SHA256()))
    with pytest.raises(InvalidSignature):
        key.public_key().verify(signature, signed_message(payload + b" "), ec.ECDSA(SHA256()))


def test_release_without_a_key_has_no_signatures(release: ModuleType) -> None:
    found = release.described({WHEEL: b"wheel"}, release.Commit("a" * 40, 0), None, release.LOCAL_BUILDER)
    assert set(found) == {WHEEL, "headway-0.1.0.intoto.json", "SHA256SUMS"}
    assert b"headway-0.1.0.intoto.json\n" in found["SHA256SUMS"]


def test_other_keys_are_refused_before_the_build(release: ModuleType, tmp_path: Path) -> None:
    curve, file = ec.generate_private_key(ec.SECP256R1()), tmp_path / "key.pem"
    texts = [
        b"nonsense",
        curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")),
        ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ]
    for text in texts:
        file.write_bytes(text)
        with pytest.raises(release.ReleaseError, match="not an unencrypted ECDSA key"):
            release.read_key(file)
    file.write_bytes(curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert release.read_key(file).private_numbers() == curve.private_numbers()
    with pytest.raises(release.ReleaseError, match="can't be read: No such file"):
        release.read_key(tmp_path / "lost.pem")
