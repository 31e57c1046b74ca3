"""Packs a working folder as an archive named by the digest of its content. Files excluded by .gitignore files are
left out: those of the folder and, in a repository, of the folders above it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headway.domain.jobs.bundle_limits import MAX_ARCHIVE, MAX_FILES, MAX_UNPACKED
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from headway.schemas.submission.job_field_types import GitIn

_NEVER = {".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_PLACEHOLDERS = {".gitkeep", ".keep", ".gitignore"}
_ANY = "\x01\x02"  # a file name that no rule matches by name


@dataclass(frozen=True)
class Bundle:
    """A folder's files. `digest` depends on names, contents, links and the executable bit; not on times, owners or location."""

    folder: Path
    files: tuple[str, ...]  # relative, sorted
    counted: tuple[str, ...]  # each file's line of the digest
    size: int  # bytes before compression

    @property
    def digest(self) -> str:
        """Returns the SHA-256 of all files' digest lines; names are hashed as bytes because they need not be text."""
        return hashlib.sha256("\n".join(sorted(self.counted)).encode(errors="surrogateescape")).hexdigest()

    def archive(self) -> bytes:
        """Returns a tar.gz, the same bytes each time. Raises Refused when it is too large, or a file has changed meanwhile."""
        buffer = io.BytesIO()
        with (
            _readable(self.folder),
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=3) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar,
        ):
            for name, counted in zip(self.files, self.counted, strict=True):
                mark, content = _read_entry(self.folder / name)
                if _digest_line(name, mark, content) != counted:
                    raise Refused(
                        f"{_printable(str(self.folder / name))} changed while it was being read",
                        hint="try again; add files that are written continuously to .gitignore",
                    )
                tar.addfile(*_tar_member(name, mark, content))
        data = buffer.getvalue()
        if len(data) > MAX_ARCHIVE:
            raise _too_large(
                self.folder, self.files, f"{len(data) / 2**20:.0f} MiB compressed", f"{MAX_ARCHIVE >> 20} MiB"
            )
        return data


def bundle_folder(folder: Path) -> Bundle:
    """Returns the folder's files. Raises NotFound for a missing folder, Refused for too many or unreadable files."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    with _readable(folder):
        files = sorted(_files(folder))
        size = sum((folder / name).lstat().st_size for name in files)
        if len(files) > MAX_FILES:
            raise _too_large(folder, files, f"{len(files)} files", f"{MAX_FILES} files")
        if size > MAX_UNPACKED:
            raise _too_large(folder, files, f"{size / 2**20:.0f} MiB", f"{MAX_UNPACKED >> 20} MiB")
        return Bundle(
            folder, tuple(files), tuple(_digest_line(name, *_read_entry(folder / name)) for name in files), size
        )


def git_state(folder: Path) -> GitIn | None:
    """Returns commit, branch and whether files differ from it; None outside a repository or without git."""
    from headway.schemas.submission.job_field_types import GitIn

    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    lines = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
    head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and line.count(" ") > 1)
    commit = head.get("branch.oid", "")
    if not lines or commit == "(initial)":
        return None
    dirty = any(not line.startswith("# ") for line in lines)
    return GitIn(commit=commit, branch=head.get("branch.head", ""), dirty=dirty)


def _git(folder: Path, *words: str) -> list[str]:
    """Returns the lines of git's output; [] without git or when it fails. Runs the command in a thread with its own
    event loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from headway.errors import HeadwayError
    from headway.transport.process import run_process

    async def run_git() -> list[str]:
        try:
            return (await run_process(["git", "-C", str(folder), *words], timeout_s=20)).stdout.splitlines()
        except (HeadwayError, OSError):
            return []

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(run_git())).result()


def _files(folder: Path) -> list[str]:
    """Returns files and links in all subfolders that git does not ignore. Raises Refused when rules exclude all files.

    A folder that git itself ignores, but that the user names, is meant to be uploaded: rules above it that exclude it, or
    everything in it, do not apply."""
    base, above = _above(folder)
    found, left_out = _walk(folder, base, _without(above, base))
    if left_out and not _real(found):
        found, left_out = _walk(folder, base, _without(above, base, f"{base}{_ANY}"))
    if left_out and not _real(found):
        raise Refused(
            f"{_printable(str(folder))}: its .gitignore files exclude everything in it",
            hint="name another folder, or upload none: headway run --no-files",
        )
    return found


def _real(files: Sequence[str]) -> bool:
    """Returns whether there are files other than placeholders of empty folders."""
    return any(name.rpartition("/")[2] not in _PLACEHOLDERS for name in files)


def _walk(folder: Path, base: str, above: dict[str, GitIgnoreSpec]) -> tuple[list[str], bool]:
    """Returns (files that are uploaded, whether a rule excludes anything)."""
    rules, found, left_out = dict(above), list[str](), False
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        here = os.path.relpath(place, folder)
        here = "" if here == "." else here + "/"
        if ".gitignore" in names:
            rules[base + here] = _rules(Path(place))
        links = [name for name in folders if Path(place, name).is_symlink()]
        inside = sorted(name for name in folders if name not in _NEVER and name not in links)
        folders[:] = [name for name in inside if not _ignored(rules, f"{base}{here}{name}/")]
        files = [name for name in (*names, *links) if _sent(Path(place, name))]
        kept = [here + name for name in files if not _ignored(rules, base + here + name)]
        left_out = left_out or len(folders) < len(inside) or len(kept) < len(files)
        found += kept
    return found, left_out


def _sent(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _above(folder: Path) -> tuple[str, dict[str, GitIgnoreSpec]]:
    """Returns the folder's path from its repository's root ("" or ending in "/"), and the rules of the folders above it by
    such paths."""
    real = folder.resolve()
    root = next((place for place in (real, *real.parents) if (place / ".git").exists()), real)
    above = [place for place in real.parents if place.is_relative_to(root)]
    name = f"{real.relative_to(root)}/" if above else ""
    return name, {f"{place.relative_to(root)}/" if place != root else "": _rules(place) for place in above}


def _without(rules: dict[str, GitIgnoreSpec], *names: str) -> dict[str, GitIgnoreSpec]:
    """Returns the rules without the lines that ignore one of these names."""
    from pathspec import GitIgnoreSpec

    made = dict(rules)
    for here, name in ((here, name) for here in rules for name in names):
        inside = name.removeprefix(here)
        if made[here].check_file(inside).include:
            left = (
                pattern
                for pattern in made[here].patterns
                if not (pattern.include and pattern.match_file(inside) is not None)
            )
            made[here] = GitIgnoreSpec([*left])
    return made


def _rules(place: Path) -> GitIgnoreSpec:
    """Returns the rules of this folder's .gitignore; none without the file."""
    from pathspec import GitIgnoreSpec

    file = place / ".gitignore"
    return GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines() if file.is_file() else [])


def _ignored(rules: dict[str, GitIgnoreSpec], name: str) -> bool:
    """Returns whether the name is ignored: the innermost .gitignore with a matching rule decides."""
    for place in sorted(rules, key=len, reverse=True):
        if name.startswith(place):
            ignored = rules[place].check_file(name[len(place) :]).include
            if ignored is not None:
                return ignored
    return False


def _read_entry(path: Path) -> tuple[str, bytes]:
    """Returns (l for a link, x for an executable, f for any other file; its content)."""
    if path.is_symlink():
        return "l", os.fsencode(path.readlink())
    return "x" if path.stat().st_mode & 0o100 else "f", path.read_bytes()


def _digest_line(name: str, mark: str, content: bytes) -> str:
    return f"{mark} {hashlib.sha256(content).hexdigest()} {name}"


def _tar_member(name: str, mark: str, content: bytes) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    """Returns the tar entry of a file: hard links become files of their own; owner and times are left out."""
    info = tarfile.TarInfo(name)
    if mark == "l":
        info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(content)
        return info, None
    info.size, info.mode = len(content), 0o755 if mark == "x" else 0o644
    return info, io.BytesIO(content)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(
            f"{_printable(str(error.filename or folder))} can't be read: {error.strerror}",
            hint="add what the job does not need to .gitignore",
        ) from None


def _unreadable(error: OSError) -> None:
    raise error


def _printable(name: str) -> str:
    """Returns the name as valid UTF-8, for messages."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _too_large(folder: Path, files: Sequence[str], has: str, most: str) -> Refused:
    by_size = sorted(files, key=lambda name: -(folder / name).lstat().st_size)[:3]
    largest = ", ".join(f"{_printable(name)} ({(folder / name).lstat().st_size / 2**20:.1f} MiB)" for name in by_size)
    return Refused(
        f"{_printable(str(folder))} has {has} to upload; the maximum is {most}",
        hint=f"largest: {largest}\n"
        "add what the job does not need to .gitignore; data belongs on /scratch (headway cp) or in a dataset",
    )
