"""Parses the value of --container-image. Pure.

repo:tag, user@registry#repo:tag, registry:port#repo:tag, docker://... of these, registry:port/repo:tag,
repo@sha256:...                         an image in a registry; the default registry is Docker Hub
/path/image.sqsh, ./image.sqsh          a squashfs file
/path/folder, oci:/path/folder[:tag]    an OCI layout
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from messages import Failed

HUB = "docker.io"
FORMS = "forms: repo:tag, registry#repo:tag, registry:port#repo:tag, docker://..., /path/image.sqsh, /path/oci-layout"
_HOST = re.compile(r"(?!-)[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Registry:
    """An image in a registry. Either `tag` or `digest` is ""; if the user gives both, `tag` is ""."""

    host: str
    repository: str
    tag: str = "latest"
    digest: str = ""
    user: str = ""  # user name whose password is used, if there are several for the registry

    @property
    def name(self) -> str:
        """The image's name for skopeo."""
        return self.at(self.digest) if self.digest else f"docker://{self.host}/{self.repository}:{self.tag}"

    def at(self, digest: str) -> str:
        """Returns skopeo's name of the manifest with this digest in the image's repository."""
        return f"docker://{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        return self.name.removeprefix("docker://")


@dataclass(frozen=True)
class Path:
    """A squashfs file or the folder of an OCI layout. The path decides which when it is opened."""

    path: str
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.tag}" if self.tag else self.path


def parse(text: str) -> Registry | Path:
    """Returns the image that `text` names. Raises Failed if `text` names none."""
    if not text.isprintable() or any(letter.isspace() for letter in text) or not text:
        raise Failed("--container-image: not the name of an image", FORMS)
    if text.startswith("oci:"):
        path, _, tag = text.removeprefix("oci:").removeprefix("//").partition(":")
        return Path(os.path.abspath(path), tag)
    if text.startswith(("/", "./", "../")) or text.endswith((".sqsh", ".squashfs")):
        return Path(os.path.abspath(text))
    if "://" in text and not text.startswith("docker://"):
        raise Failed(f"--container-image: {text.split('://')[0]}:// is not supported", FORMS)
    return _registry(text.removeprefix("docker://"))


def _registry(text: str) -> Registry:
    user, host = "", ""
    name, at, digest = text.rpartition("@sha256:")
    rest, digest = (name, f"sha256:{digest}") if at else (text, "")
    if "#" in rest:
        left, _, rest = rest.partition("#")
        user, _, host = left.rpartition("@")
    else:
        user, _, rest = rest.rpartition("@")
        first, slash, after = rest.partition("/")
        if slash and (first == "localhost" or "." in first or ":" in first):
            host, rest = first, after
    host = host or HUB
    repository, colon, tag = rest.partition(":")
    if host == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.fullmatch(host):
        raise Failed(f"--container-image: {host!r} is not the name of a registry", FORMS)
    if not _REPOSITORY.fullmatch(repository):
        raise Failed(f"--container-image: {repository!r} is not the name of an image: lower case only", FORMS)
    if colon and not _TAG.fullmatch(tag):
        raise Failed(f"--container-image: {tag!r} is not a tag", FORMS)
    if digest and not _DIGEST.fullmatch(digest):
        raise Failed("--container-image: a digest is sha256: and 64 hex digits", FORMS)
    return Registry(host, repository, "" if digest else tag or "latest", digest, user)
