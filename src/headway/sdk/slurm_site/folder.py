"""Reads a site from a folder of this machine, such as a copy of /etc/slurm with a file of `sacctmgr dump`."""

from __future__ import annotations

import os
from pathlib import Path

from headway.errors import NotFound, Refused
from headway.slurm_import.importer import SiteFiles

MOST_FILES = 5000
LARGEST_FILE = 64 * 2**20  # bytes
# Never opened: private keys, and files that are no configuration
_SECRET_ENDS = (".key", ".pem", ".crt", ".cer", ".jwks", ".p12", ".gpg", ".asc")
_SECRET_NAMES = ("shadow", "gshadow", "munge.key", "slurm.jwks")


def read_folder(folder: Path) -> SiteFiles:
    """Returns the texts of all files below a folder. Files that can't be read are named with the reason. Raises NotFound
    and Refused if the folder can't be read."""
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder", hint="name a folder with slurm.conf, or a head: ssh://HEAD")
    texts: dict[str, str] = {}
    unread: dict[str, str] = {}
    for place, folders, names in os.walk(folder, onerror=lambda error: _note(unread, error, folder)):
        folders[:] = sorted(name for name in folders if not name.startswith(".git"))
        for name in sorted(names):
            file = Path(place, name)
            path = file.relative_to(folder).as_posix()
            if len(texts) >= MOST_FILES:
                raise Refused(
                    f"{folder} has more than {MOST_FILES} files", hint="name the folder with slurm.conf alone"
                )
            if name.lower() in _SECRET_NAMES or name.lower().endswith(_SECRET_ENDS):
                unread[path] = "it may be a key: keys are not read"
            else:
                _read(file, path, texts, unread)
    return SiteFiles(texts, unread, str(folder))


def _note(unread: dict[str, str], error: OSError, folder: Path) -> None:
    unread[os.path.relpath(error.filename, folder)] = error.strerror or "it can't be read"


def _read(file: Path, path: str, texts: dict[str, str], unread: dict[str, str]) -> None:
    try:
        if not file.is_file():
            unread[path] = "it is no file" if file.exists() else "the link leads nowhere"
        elif file.stat().st_size > LARGEST_FILE:
            unread[path] = f"it is larger than {LARGEST_FILE // 2**20} MiB"
        else:
            text = file.read_bytes()
            if b"\0" in text:
                unread[path] = "it is not text"
            elif "PRIVATE KEY" in (words := text.decode("utf-8", errors="replace"))[:200]:
                unread[path] = "it is a private key: keys are not read"
            else:
                texts[path] = words
    except OSError as error:
        unread[path] = error.strerror or "it can't be read"
