"""A working folder as one archive named by its content, by the rules of its .gitignore files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from headway.wire.work import GitIn

MAX_ARCHIVE_MIB = 64  # compressed, as it is sent
MAX_FILES_MIB = 512  # before
MAX_FILES = 20_000
_NEVER = {".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


@dataclass(frozen=True)
class Bundle:
    """`digest` depends on names, contents, links and the executable bit; not on times, owners or the folder's place."""

    folder: Path
    files: tuple[str, ...]  # relative, sorted
    digest: str
    size: int  # bytes before compression

    def archive(self) -> bytes:
        """tar.gz, the same bytes each time. Raises Refused when it is larger than is sent."""
        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=3) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar,
        ):
            for name in self.files:
                tar.add(self.folder / name, arcname=name, recursive=False, filter=_plain)
        data = buffer.getvalue()
        if len(data) > MAX_ARCHIVE_MIB * 2**20:
            raise _too_large(self, f"{len(data) / 2**20:.0f} MiB compressed", f"{MAX_ARCHIVE_MIB} MiB")
        return data


def bundle(folder: Path) -> Bundle:
    """Raises NotFound for no folder, Refused for too much in it (with the largest files named)."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    files = sorted(_files(folder))
    size = sum((folder / name).lstat().st_size for name in files)
    found = Bundle(folder, tuple(files), "", size)
    if len(files) > MAX_FILES:
        raise _too_large(found, f"{len(files)} files", f"{MAX_FILES} files")
    if size > MAX_FILES_MIB * 2**20:
        raise _too_large(found, f"{size / 2**20:.0f} MiB", f"{MAX_FILES_MIB} MiB")
    return Bundle(folder, tuple(files), _digest(folder, files), size)


def git_state(folder: Path) -> GitIn | None:
    """Commit, branch and whether files differ from it; None outside of a repository or without git."""
    from headway.wire.work import GitIn

    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    said = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
    head = dict(line[2:].split(" ", 1) for line in said if line.startswith("# ") and line.count(" ") > 1)
    commit = head.get("branch.oid", "")
    if not said or commit == "(initial)":
        return None
    dirty = any(not line.startswith("# ") for line in said)
    return GitIn(commit=commit, branch=head.get("branch.head", ""), dirty=dirty)


def _git(folder: Path, *words: str) -> list[str]:
    """Lines of git's answer; [] when there is no git or it refuses. In a thread, as the caller may run in a loop."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from headway.errors import HeadwayError
    from headway.machines.run import run

    async def ask() -> list[str]:
        try:
            return (await run(["git", "-C", str(folder), *words], timeout_s=20)).stdout.splitlines()
        except (HeadwayError, OSError):
            return []

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()


def _files(folder: Path) -> Iterator[str]:
    """Files and links that git would not ignore, in every folder below."""
    rules: dict[str, GitIgnoreSpec] = {}
    for place, folders, names in os.walk(folder):
        here = os.path.relpath(place, folder)
        here = "" if here == "." else here + "/"
        if ".gitignore" in names:
            rules[here] = _rules(Path(place) / ".gitignore")
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NEVER and name not in links and not _ignored(rules, f"{here}{name}/")
        )
        for name in [*names, *links]:
            path = Path(place, name)
            if (path.is_symlink() or path.is_file()) and not _ignored(rules, here + name):
                yield here + name


def _rules(path: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(path.read_text(errors="replace").splitlines())


def _ignored(rules: dict[str, GitIgnoreSpec], name: str) -> bool:
    """The innermost .gitignore that says anything about the name decides."""
    for place in sorted(rules, key=len, reverse=True):
        if name.startswith(place):
            said = rules[place].check_file(name[len(place) :]).include
            if said is not None:
                return said
    return False


def _digest(folder: Path, files: list[str]) -> str:
    """Names may hold any bytes, so they are counted as those, not as text."""
    lines = []
    for name in files:
        path = folder / name
        if path.is_symlink():
            lines.append(
                f"l {hashlib.sha256(str(path.readlink()).encode(errors='surrogateescape')).hexdigest()} {name}"
            )
        else:
            mark = "x" if path.stat().st_mode & 0o100 else "f"
            lines.append(f"{mark} {hashlib.sha256(path.read_bytes()).hexdigest()} {name}")
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


def _said(name: str) -> str:
    """A name for the screen, which takes UTF-8 only."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _too_large(found: Bundle, has: str, most: str) -> Refused:
    by_size = sorted(found.files, key=lambda name: -(found.folder / name).lstat().st_size)[:3]
    largest = ", ".join(f"{_said(name)} ({(found.folder / name).lstat().st_size / 2**20:.1f} MiB)" for name in by_size)
    return Refused(
        f"{_said(str(found.folder))} has {has} to send with the job; at most {most} are sent",
        hint=f"largest: {largest}\n"
        "put what the job does not need into .gitignore; data belongs on /scratch (headway cp) or in a dataset",
    )
