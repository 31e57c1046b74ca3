"""Builds the files of a release: `make release`, `python tools/release.py --help`.

Wheel and source distribution of the present commit, bills of materials, a provenance statement (in-toto, SLSA v1) and
SHA256SUMS. The build is reproducible: it takes files from the commit, times from its date, and is made twice (the
documentation site too) and compared.
With a private key SHA256SUMS and the provenance are signed."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import headway
from assets import VENDOR
from assets import main as fetch_assets
from docs import DocsError, build_site
from headway.catalog.node_images import DEFAULT_IMAGE
from headway.errors import HeadwayError
from headway.images.image_sbom import image_sbom
from headway.signed_statement import STATEMENT, envelope
from sbom import LOCK, NPM_LOCK, ROOT, SbomError, server_sbom

STATIC = Path("src/headway/web/static")
BUILD_TYPE = "urn:headway:make-release:v1"
SUMS, SIGNATURE, _INTOTO = "SHA256SUMS", "SHA256SUMS.sig", ".intoto.json"
LOCAL_BUILDER = "urn:headway:builder:local"
_TIMEOUT_S = 600
_BUILD = "import hatchling.build as b; b.build_sdist({0!r}); b.build_wheel({0!r})"


class ReleaseError(Exception):
    """The release can't be built; the message says why and what to do."""


@dataclass(frozen=True)
class Commit:
    """The commit of a release. `time`: Unix seconds of the commit."""

    digest: str
    time: int

    @property
    def timestamp(self) -> str:
        return datetime.fromtimestamp(self.time, UTC).isoformat()


def present_commit(root: Path = ROOT) -> Commit:
    """Returns the commit of a checkout. Raises ReleaseError if files differ from it."""
    if changed := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the checkout differs from its commit, first {changed.split()[1]}: commit the changes")
    digest, time = _git(root, "log", "-1", "--format=%H %ct").split()
    return Commit(digest, int(time))


def _git(root: Path, *words: str) -> str:
    return _output(["git", "-C", str(root), *words], f"git {words[0]}").decode()


def _output(argv: Sequence[str], what: str, **options: Any) -> bytes:
    """Returns what a program prints. `what`: its name in messages. Raises ReleaseError."""
    try:
        ran: subprocess.CompletedProcess[bytes] = subprocess.run(
            argv, capture_output=True, timeout=_TIMEOUT_S, check=False, **options
        )
    except OSError as error:
        raise ReleaseError(f"{what} can't be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"{what} did not end within {_TIMEOUT_S} s") from None
    if ran.returncode:
        raise ReleaseError(f"{what} failed: {ran.stderr.decode(errors='replace').strip()[-600:]}")
    return ran.stdout


def export(commit: Commit, target: Path, static: Sequence[Path], root: Path = ROOT) -> None:
    """Writes the files of a commit to the new folder `target`, and the folders `static` (browser libraries, documentation
    site), which are not in the commit. Raises ReleaseError."""
    target.mkdir(parents=True)
    archive = _output(["git", "-C", str(root), "archive", commit.digest], "git archive")
    _output(["tar", "-x", "-C", str(target)], "tar", input=archive)
    for folder in static:
        shutil.copytree(folder, target / STATIC / folder.name)


def build(source: Path, target: Path, commit: Commit) -> dict[str, bytes]:
    """Builds wheel and source distribution of exported files into the new folder `target`. Returns them by name. Raises
    ReleaseError."""
    target.mkdir(parents=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(commit.time)}
    _output([sys.executable, "-c", _BUILD.format(str(target))], "the build", cwd=source, env=env)
    return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


def build_twice(commit: Commit, work: Path, libraries: Path, root: Path = ROOT) -> dict[str, bytes]:
    """Builds the documentation site and both packages twice in the folder `work`. Returns wheel and source distribution by
    name. `libraries`: folder of the browser libraries. Raises ReleaseError if the second build differs, and DocsError."""
    built = []
    for name in ("first", "second"):
        source, site = work / name / "source", work / name / "docs"
        site.parent.mkdir(parents=True)
        build_site(site)
        export(commit, source, (libraries, site), root)
        built.append(build(source, work / name / "built", commit))
    if different := [name for name, content in built[0].items() if built[1].get(name) != content]:
        raise ReleaseError(f"the build is not reproducible: two builds of {different[0]} differ")
    return built[0]


def statement(subjects: Mapping[str, bytes], commit: Commit, builder: str, source_uri: str = "") -> dict[str, Any]:
    """Returns the in-toto statement with SLSA v1 provenance about files by name."""
    source = {"name": "source", "digest": {"gitCommit": commit.digest}, **({"uri": source_uri} if source_uri else {})}
    locks = [
        {"name": str(path.relative_to(ROOT)), "digest": {"sha256": _sha256(path.read_bytes())}}
        for path in (LOCK, NPM_LOCK)
    ]
    build_definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"commit": commit.digest, "version": headway.__version__},
        "internalParameters": {
            "SOURCE_DATE_EPOCH": str(commit.time),
            "hatchling": metadata.version("hatchling"),
            "python": platform.python_version(),
        },
        "resolvedDependencies": [source, *locks],
    }
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": _sha256(content)}} for name, content in sorted(subjects.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": build_definition, "runDetails": {"builder": {"id": builder}}},
    }


def read_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """Returns the ECDSA key in a PEM file. Raises ReleaseError."""
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except OSError as error:
        raise ReleaseError(f"the key {file} can't be read: {error.strerror}") from None
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ReleaseError(f"{file} is not an unencrypted ECDSA key: openssl ecparam -genkey -name prime256v1 -noout")
    return key


def sha256sums(files: Mapping[str, bytes]) -> bytes:
    """Returns the text of SHA256SUMS, as sha256sum writes it."""
    return "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items())).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def described(
    files: Mapping[str, bytes],
    commit: Commit,
    key: ec.EllipticCurvePrivateKey | None,
    builder: str,
    source_uri: str = "",
) -> dict[str, bytes]:
    """Returns the files with provenance and SHA256SUMS, signed if there is a key."""
    name = f"headway-{headway.__version__}{_INTOTO}"
    stated = json.dumps(statement(files, commit, builder, source_uri), indent=1).encode() + b"\n"
    if key is not None:
        stated, name = json.dumps(envelope(stated, key)).encode() + b"\n", f"{name}l"
    found = {**files, name: stated}
    sums = sha256sums(found)
    signed = {} if key is None else {SIGNATURE: key.sign(sums, ec.ECDSA(SHA256()))}
    return {**found, SUMS: sums, **signed}


def release(key: ec.EllipticCurvePrivateKey | None, builder: str, source_uri: str) -> dict[str, bytes]:
    """Returns all files of the release of the present commit by name. Raises ReleaseError."""
    commit = present_commit()
    os.environ["SOURCE_DATE_EPOCH"] = str(commit.time)  # for the documentation site
    with tempfile.TemporaryDirectory(prefix="headway-release-") as folder:
        if fetch_assets([]):
            raise ReleaseError("the browser libraries could not be fetched (above)")
        try:
            files = build_twice(commit, Path(folder), VENDOR)
            files[f"headway-{headway.__version__}.cdx.json"] = server_sbom(commit.timestamp).encode()
        except (DocsError, SbomError) as error:
            raise ReleaseError(str(error)) from None
    try:
        files[f"headway-node-{DEFAULT_IMAGE}.cdx.json"] = asyncio.run(image_sbom(DEFAULT_IMAGE)).encode()
    except HeadwayError as error:
        print(f"release: no bill of materials of a node image: {error.message}", file=sys.stderr)
    return described(files, commit, key, builder, source_uri)


def check_output(folder: Path) -> None:
    """Raises ReleaseError unless the folder for the files is missing, empty, or contains an earlier release only."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines() if SUMS in names else []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{SUMS} is no text"
        raise ReleaseError(f"{folder} can't be used: {reason}; give another folder: --output FOLDER") from None
    listed = {line.partition("  ")[2] for line in lines}
    released = (
        {*listed, SUMS, SIGNATURE} if any(name.startswith("headway-") and _INTOTO in name for name in listed) else set()
    )
    if others := sorted(names - released):
        raise ReleaseError(
            f"{folder} contains {others[0]}, which is of no release: move it away, or give another folder: --output FOLDER"
        )


def write_output(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replaces the earlier release in the folder by these files. Raises ReleaseError."""
    check_output(folder)  # the build takes minutes
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ReleaseError(f"{error.filename or folder} can't be written: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="release", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="Folder for the files (default: dist).")
    parser.add_argument("--key", type=Path, help="ECDSA private key (PEM) that signs SHA256SUMS and the provenance.")
    parser.add_argument("--builder", default=LOCAL_BUILDER, help="URI of who builds, for the provenance.")
    parser.add_argument("--source-uri", default="", help="URI of the repository, for the provenance.")
    given = parser.parse_args(argv)
    try:
        key = read_key(given.key) if given.key else None
        check_output(given.output)
        files = release(key, given.builder, given.source_uri)
        write_output(given.output, files)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        print(f"release: the build stopped: {error}; mend that and run it again", file=sys.stderr)
        return 1
    for name, content in files.items():
        print(f"{_sha256(content)}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
