"""Reads files in the syntax of slurm.conf as sites have them: with includes, continued lines and mistakes.

`headway.render.slurm.conf_syntax` reads and writes Headway's own files and refuses mistakes; here a line with a mistake
is an item like any other, and reading goes on."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.slurm_import.verdicts import HIDDEN, Item, Ledger

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-+*/]?)=\s*(?:"([^"]*)"|([^\s"]\S*)|(?=\s|$))(?=\s|$)')
_INCLUDE = re.compile(r"\s*include\s+(\S.*?)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#")
_WORD = re.compile(r"\s*(\S+)")
MOST_INCLUDES = 500  # files that one file may include, directly and indirectly
RECORDS = frozenset(
    ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "switchname", "blockname", "name")
)


@dataclass(frozen=True)
class Record:
    """One logical line: its items in order."""

    items: tuple[Item, ...]

    @property
    def kind(self) -> str:
        """The first key in lower case: "nodename", "partitionname", ..."""
        return self.items[0].key.lower() if self.items else ""

    def get(self, *keys: str) -> Item | None:
        """Returns the last item with one of these keys (in lower case), as Slurm does; None without one."""
        found = [item for item in self.items if item.key.lower() in keys]
        return found[-1] if found else None


@dataclass
class ConfReader:
    """Reads files of a site. `files`: text by path, `folder`: where relative includes are looked up."""

    files: Mapping[str, str]
    ledger: Ledger
    unread: dict[str, str] = field(default_factory=dict)  # file -> why it could not be read
    seen: set[str] = field(default_factory=set)  # files that were read

    def read(self, path: str) -> list[Record]:
        """Returns the records of a file and of the files that it includes. A file that is missing or includes itself
        is in `unread`."""
        return list(self._records(path, ()))

    def _records(self, path: str, above: tuple[str, ...]) -> Iterator[Record]:
        self.seen.add(path)
        for number, body in logical_lines(self.files[path]):
            include = _INCLUDE.match(body)
            if include is None:
                record = self._record(path, number, body)
                if record.items:
                    yield record
                continue
            item = self.ledger.read(Item(path, number, "Include", include[1]))
            yield from self._included(item, path, (*above, path))

    def _included(self, item: Item, path: str, above: tuple[str, ...]) -> Iterator[Record]:
        targets = list(find_files(self.files, item.value, path))
        if not targets:
            self._give_up(item, item.value, "the file was not found", "copy it into the folder that is imported")
            return
        for target in targets:
            if target in above:
                self._give_up(item, target, "it includes itself", "remove this Include")
            elif target in self.seen:
                self._give_up(item, target, "it was read before", "remove the second Include")
            elif len(self.seen) > MOST_INCLUDES:
                self._give_up(item, target, f"more than {MOST_INCLUDES} files are included", "import fewer files")
            else:
                self.ledger.carried(item, "", "the keys of the included file follow")
                yield from self._records(target, above)

    def _give_up(self, item: Item, target: str, why: str, instead: str) -> None:
        self.unread.setdefault(target, why)
        self.ledger.dropped(item, why, instead)

    def _record(self, path: str, number: int, body: str) -> Record:
        pairs = list(_pairs(body))
        first = pairs[0] if pairs else ("", "")
        context = f"{first[0]}={first[1]}"[:80] if first[0].lower() in RECORDS and len(pairs) > 1 else ""
        items = [Item(path, number, key, value, context if index else "") for index, (key, value) in enumerate(pairs)]
        return Record(tuple(self.ledger.read(item) for item in items))


def find_files(files: Mapping[str, str], name: str, path: str) -> Iterator[str]:
    """Yields the files that the file at `path` names, also by a pattern: relative to it, else by the longest end of the
    name that is there, because an imported folder is often a copy."""
    folder = posixpath.dirname(path)
    parts = name.strip("\"'").lstrip("/").split("/")
    ends = ["/".join(parts[at:]) for at in range(len(parts))]
    for candidate in dict.fromkeys(
        posixpath.normpath(posixpath.join(place, end)) for end in ends for place in (folder, "")
    ):
        found = [candidate] if candidate in files else []
        if not found and any(c in candidate for c in "*?["):
            depth = candidate.count("/")
            found = sorted(one for one in fnmatch.filter(files, candidate) if one.count("/") == depth)
        if found:
            yield from found
            return


def _pairs(body: str) -> Iterator[tuple[str, str]]:
    """Yields key and value; words between them that are no pair have the key "" together."""
    position, end, broken = 0, len(body.rstrip()), list[str]()
    while position < end:
        match = _PAIR.match(body, position, end)
        if match is not None:
            if broken:
                yield "", " ".join(broken)
                broken = []
            value = match[3] if match[3] is not None else match[4] or ""
            yield match[1] + match[2].strip(), value
            position = match.end()
            continue
        word = _WORD.match(body, position, end)
        if word is None:
            break
        # A broken line may have a secret in it: what stands behind "=" is not kept.
        name, mark, _ = word[1].partition("=")
        broken.append(f"{name}={HIDDEN}" if mark else name)
        position = word.end()
    if broken:
        yield "", " ".join(broken)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of each line that is neither blank nor a comment; continued lines are joined."""
    joined, start = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        start = start or number
        mark = _COMMENT.search(raw)
        body = raw.rstrip("\r") if mark is None else raw[: mark.start()]
        if mark is None and body.endswith("\\"):
            joined += body[:-1]
            continue
        if (joined + body).strip():
            yield start, joined + body
        joined, start = "", 0
    if joined.strip():
        yield start, joined
