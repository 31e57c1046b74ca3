"""The program that works on the dataset files of a cluster of owned machines. It is sent to the head together with
datasets/file_store.py and works there on the folder that the machines share. It uses only the standard library.

    file_store_program.py import ROOT NAME BEFORE           reads lists of files, writes a manifest; see `Sent`
    file_store_program.py publish ROOT NAME NUMBER          reads a manifest
    file_store_program.py verify ROOT NAME NUMBER DIGEST
    file_store_program.py remove ROOT NAME NUMBER
    file_store_program.py end-import ROOT NAME

Answers are lines of JSON. The last one is {"error": ..., "hint": ...} when the work failed."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.datasets.file_progress import FileProgress
from headway.datasets.file_store import DatasetFileStore
from headway.datasets.manifest import DatasetManifest
from headway.datasets.source import Item, Listing
from headway.errors import HeadwayError, Refused

MARK = 4  # bytes of the length before each piece; a piece of length 0 ends a file
_TOLD_S = 1.0


class Sent:
    """A source that the server sends on standard input: first the list of files in one line of JSON, then the
    content of each file that this program requests by its position in the list."""

    def __init__(self, progress: FileProgress) -> None:
        self._in = sys.stdin.buffer
        self._progress = progress
        listing = json.loads(self._in.readline())
        self._listing = Listing(
            tuple(Item(path, size, executable, stamp) for path, size, executable, stamp in listing["files"]),
            tuple((path, target) for path, target in listing["links"]),
            tuple(listing["folders"]),
        )
        self._place = {item.path: place for place, item in enumerate(self._listing.files)}

    def listing(self) -> Listing:
        """Returns what the server listed."""
        return self._listing

    def read(self, item: Item) -> Iterator[bytes]:
        """Requests a file and yields its content as it arrives."""
        send(send=self._place[item.path], files=self._progress.files, bytes=self._progress.bytes)
        while length := int.from_bytes(self._exactly(MARK), "big"):
            yield self._exactly(length)

    def close(self) -> None:
        """Does nothing: standard input belongs to the program."""

    def _exactly(self, length: int) -> bytes:
        data = self._in.read(length)
        if len(data) != length:
            raise Refused("the sender disconnected")
        return data


def send(**message: Any) -> None:
    """Writes one line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Runs one command. Returns the exit code."""
    what, root, name, *more = sys.argv[1:]
    try:
        file_store = DatasetFileStore(_own(Path(root)))
        if what == "import":
            _import_files(file_store, name, int(more[0]))
        elif what == "publish":
            send(made=file_store.publish(name, int(more[0]), DatasetManifest.read(sys.stdin.buffer.read())))
        elif what == "verify":
            _verify(file_store, name, int(more[0]), more[1])
        elif what == "remove":
            send(freed=file_store.remove(name, int(more[0])))
        else:
            file_store.end_import(name)
            send(done=True)
    except HeadwayError as error:
        send(error=error.message, hint=error.hint)
        return 1
    return 0


def _import_files(file_store: DatasetFileStore, name: str, before: int) -> None:
    progress = FileProgress()
    manifest = file_store.import_files(name, Sent(progress), progress, before)
    send(manifest=len(manifest.text))
    sys.stdout.buffer.write(manifest.text)
    sys.stdout.buffer.flush()


def _verify(file_store: DatasetFileStore, name: str, number: int, digest: str) -> None:
    progress, over = FileProgress(), threading.Event()

    def send_progress() -> None:
        while not over.wait(_TOLD_S):
            send(files=progress.files, bytes=progress.bytes, of_files=progress.of_files, of_bytes=progress.of_bytes)

    teller = threading.Thread(target=send_progress)
    teller.start()
    try:
        wrong = file_store.verify(name, number, digest, progress)
    finally:
        over.set()
        teller.join()
    send(wrong=wrong)


def _own(root: Path) -> Path:
    """Returns the folder, after creating it and checking that it and its two parents belong to root. Raises
    Refused where one does not."""
    for folder in (root.parent.parent, root.parent, root):
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            about = os.lstat(folder)
        except OSError as error:
            raise Refused(f"{folder}: {error.strerror}", hint="run headway apply to create it") from error
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            raise Refused(f"{folder} does not belong to root", hint="remove it, then run headway apply")
        if folder != root:
            folder.chmod(0o755)  # nodes need access, and the file server may map their root to nobody
    return root
