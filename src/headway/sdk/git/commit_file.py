"""Reads a cluster file from a commit of a Git repository, without a checkout: nothing of the repository is executed.

Git fetches into an empty repository of its own, with the credentials that git itself has (credential helpers, SSH
keys). The files next to the cluster file are then written to a temporary folder as plain files, so that it can name keys
among them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from headway.errors import CommandFailed, NotFound, Refused, Unreachable
from headway.schemas.clusters import Document, GitOrigin
from headway.sdk.cluster_file import load_document
from headway.sdk.git.commit_file_rules import faults_of_commit_file

FETCH_S = 120.0
READ_S = 30.0  # of one command on what was fetched
MOST_FILES = 100  # in the folder of the cluster file
MOST_BYTES = 4 * 1024 * 1024  # of one file
_KEPT_CHARACTERS = 400  # of git's error
_PROTOCOLS = "https:http:ssh:git:file"  # what git may use; never ext, which runs a command, nor other helpers
_SCHEMES = tuple(f"{name}://" for name in _PROTOCOLS.split(":"))
_SSH_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?:(?!//)[^:\s]\S*")  # user@host:path
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FORBIDDEN_PARTS = ("", ".", "..")
# Variables that lead git to another repository; a hook of git has them.
_UNSET = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_QUARANTINE_PATH",
)  # fmt: skip
_OPTIONS = ("core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A cluster file of a commit: where it was written, and where it is from."""

    file: Path
    origin: GitOrigin


def load_from_git(url: str, ref: str, path: str) -> Document:
    """Returns the document of the cluster file `path` of a commit, with the commit that it is from. Raises as
    `fetched_file` and `load_document`, and InvalidSpec for a file that names a command or files outside its folder."""
    with fetched_file(url, ref, path) as found:
        document = load_document(found.file, check=faults_of_commit_file)
    return document.model_copy(update={"origin": found.origin})


@contextmanager
def fetched_file(url: str, ref: str, path: str) -> Iterator[FetchedFile]:
    """Yields the file `path` of the commit that `ref` ("" = the default branch) names in the repository, and removes it
    afterwards.

    Raises Refused for a URL, ref or path that is not one, for a file that is none, and for a local repository in which
    the file has changes that are not committed; NotFound for a missing ref or file; Unreachable if the repository
    can't be read."""
    where, wanted = _checked_path(path), _checked_ref(ref)
    with tempfile.TemporaryDirectory(prefix="headway-git-") as folder:
        asyncio.run(_fetch(_checked_url(url), wanted, url, Path(folder) / "repository"))
        repository = _Repository(Path(folder) / "repository", shown_url(url))
        commit = asyncio.run(repository.commit())
        if Path(url).is_dir():
            asyncio.run(_require_committed(Path(url), where, commit))
        files = asyncio.run(repository.write_folder(commit, where, Path(folder) / "files"))
        yield FetchedFile(files / where.name, GitOrigin(url=shown_url(url), ref=ref, commit=commit, path=str(where)))


def shown_url(url: str) -> str:
    """Returns the URL without a password or token in it."""
    try:
        parts = urlsplit(url) if "://" in url else None
    except ValueError:  # "https://[bad"
        return re.sub(r"//[^/@]*@", "//", url)
    if parts is None or "@" not in parts.netloc:
        return url
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0] if parts.scheme == "ssh" else ""
    return urlunsplit(parts._replace(netloc=f"{name}@{host}" if name else host))


def _checked_url(url: str) -> str:
    folder = Path(url)
    if "\0" in url or any(ord(character) < 0x20 for character in url):
        raise Refused("--from-git has a control character", hint="give a URL such as https://HOST/REPOSITORY.git")
    if url.startswith(_SCHEMES):
        rest = url.partition("://")[2]
        if rest.startswith("-") or rest.rpartition("@")[2].startswith("-"):
            raise Refused(f"--from-git {shown_url(url)!r} has a host that starts with -")
        return url
    if url and not url.startswith("-") and folder.is_dir():
        return str(folder.absolute())
    if _SSH_FORM.fullmatch(url) and "::" not in url:
        return url
    raise Refused(
        f"--from-git {url[:200]!r} is not the address of a Git repository",
        hint="give https://, ssh://, git:// or file://, user@host:path, or a folder",
    )


def _checked_ref(ref: str) -> str:
    if ref and (not _REF.fullmatch(ref) or ".." in ref or "@{" in ref or "//" in ref or ref.endswith(("/", ".lock"))):
        raise Refused(
            f"--ref {ref[:200]!r} is not a branch, tag or commit", hint="for example main, v1.2 or a whole hash"
        )
    return ref or "HEAD"


def _checked_path(path: str) -> PurePosixPath:
    where = PurePosixPath(path)
    parts = path.split("/")
    if where.is_absolute() or any(part in _FORBIDDEN_PARTS for part in parts) or not path.isprintable():
        raise Refused(
            f"--path {path[:200]!r} is not the path of a file in the repository", hint="for example clusters/lab.yaml"
        )
    return where


async def _fetch(url: str, wanted: str, named: str, repository: Path) -> None:
    """Fetches one commit into a new repository."""
    await _git(["init", "--quiet", "--bare", "--template=", str(repository)], timeout_s=READ_S)
    command = [f"--git-dir={repository}", "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--"]
    try:
        await _git([*command, url, wanted], timeout_s=FETCH_S)
    except CommandFailed as error:
        shown, text = shown_url(named), error.stderr.replace(named, shown_url(named))
        if error.code is None:
            raise Unreachable(f"{shown} was not fetched within {FETCH_S:.0f} s", hint="check the connection") from None
        if "couldn't find remote ref" in text or "not our ref" in text:
            short = re.fullmatch(r"[0-9a-f]{4,39}", wanted)
            hint = "give the whole hash of the commit" if short else "push it first, or name another one with --ref"
            raise NotFound(f"{shown} has no {wanted}", hint=hint) from None
        raise Unreachable(
            f"git can't read {shown}: {text.strip()[-_KEPT_CHARACTERS:]}",
            hint="git itself signs in: set up its credential helper or an SSH key, and try git ls-remote",
        ) from None


async def _require_committed(folder: Path, where: PurePosixPath, commit: str) -> None:
    """Raises Refused if the file in this checkout differs from its last commit, or is not in Git: its author may think
    that it is applied."""
    try:
        inside = await _git(["-C", str(folder), "rev-parse", "--is-inside-work-tree"], timeout_s=READ_S)
        if inside.strip() != "true":
            return
        status = await _git(
            ["-C", str(folder), "status", "--porcelain", "--untracked-files=all", "--", f":(literal,top){where}"],
            timeout_s=READ_S,
        )
    except CommandFailed:
        return  # a bare repository
    if status.strip():
        raise Refused(
            f"{where} in {folder} has changes that are not committed; commit {commit[:12]} lacks them",
            hint=f"commit them, or apply the file itself: headway apply {folder / where}",
        )


@dataclass(frozen=True, slots=True)
class _Repository:
    """The fetched repository. `shown`: its address, for messages."""

    folder: Path
    shown: str

    async def commit(self) -> str:
        """Returns the hash of the fetched commit."""
        try:
            return (await self._read(["rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}"])).strip()
        except CommandFailed:
            raise Refused(f"what was fetched from {self.shown} is not a commit", hint="name a branch or tag") from None

    async def write_folder(self, commit: str, where: PurePosixPath, target: Path) -> Path:
        """Writes the regular files of the folder that contains `where` to `target`, and returns it."""
        parent = "" if str(where.parent) == "." else f"{where.parent}/"
        listing = await self._read(
            ["ls-tree", "-r", "-z", "--long", "--full-tree", commit, *([parent] if parent else [])]
        )
        found: dict[str, tuple[str, int]] = {}
        kinds: dict[str, str] = {}
        for line in listing.split("\0"):
            if not line:
                continue
            meta, _, name = line.partition("\t")
            mode, kind, blob, size = meta.split()
            kinds[name] = mode
            if kind == "blob" and mode in ("100644", "100755") and not set(name.split("/")) & set(_FORBIDDEN_PARTS):
                found[name] = (blob, int(size))
        if str(where) not in found:
            self._raise_missing(commit, where, kinds)
        wanted = {name: blob for name, (blob, size) in found.items() if size <= MOST_BYTES or name == str(where)}
        if len(wanted) > MOST_FILES:  # a large repository: the cluster file alone
            wanted = {str(where): found[str(where)][0]}
        if found[str(where)][1] > MOST_BYTES:
            raise Refused(f"{where} of {commit[:12]} has more than {MOST_BYTES:,} bytes", hint="name the cluster file")
        for name, blob in wanted.items():
            file = target / PurePosixPath(name).relative_to(where.parent)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(await self._bytes(["cat-file", "blob", blob]))
        return target

    def _raise_missing(self, commit: str, where: PurePosixPath, kinds: dict[str, str]) -> None:
        mode = kinds.get(str(where), "")
        what = {"120000": "a symbolic link", "160000": "a submodule"}.get(mode, "")
        if what or any(name.startswith(f"{where}/") for name in kinds):
            raise Refused(f"{where} of {commit[:12]} is {what or 'a folder'}", hint="name the cluster file with --path")
        raise NotFound(f"commit {commit[:12]} of {self.shown} has no {where}", hint="name the cluster file with --path")

    async def _read(self, arguments: Sequence[str]) -> str:
        return (await self._bytes(arguments)).decode("utf-8", "replace")

    async def _bytes(self, arguments: Sequence[str]) -> bytes:
        return await _git_bytes([f"--git-dir={self.folder}", *arguments], timeout_s=READ_S)


async def _git(arguments: Sequence[str], *, timeout_s: float) -> str:
    return (await _git_bytes(arguments, timeout_s=timeout_s)).decode("utf-8", "replace")


async def _git_bytes(arguments: Sequence[str], *, timeout_s: float) -> bytes:
    """Returns what a command of git prints. Raises CommandFailed."""
    # Imported late: only this option starts git.
    from headway.transport.process import run_process

    unset = [word for name in _UNSET for word in ("-u", name)]
    settings = [word for option in _OPTIONS for word in ("-c", option)]
    env = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
    done = await run_process(
        ["env", *unset, "git", *settings, *arguments], timeout_s=timeout_s, env=env, max_output=MOST_BYTES * 2
    )
    return done.out
