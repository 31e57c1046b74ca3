"""Reads and writes the syntax of slurm.conf: `parse_lines` and `format_lines`. gres.conf, cgroup.conf, topology.conf
and slurmdbd.conf have the same syntax.

A line has any number of key=value pairs (`NodeName=a CPUs=4`), an `Include`, a comment, or nothing. Keys are
case-insensitive and keep their spelling; a value with blanks is in double quotes; an unescaped `#` starts a comment
anywhere; a backslash at the end of a line continues it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_KEY = re.compile(r"[A-Za-z0-9_.]+")
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-+*/]?)=\s*(?:"([^"]*)"|([^\s"]\S*))(?=\s|$)')
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#")
_ESCAPE = re.compile(r"\\(.)")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029#\"\\]")


@dataclass(frozen=True, slots=True)
class ConfLine:
    """One logical line. `pairs` keep order and spelling; `comment` has no `#`; a line without any of the three is
    blank."""

    pairs: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    include: str = ""

    def get(self, key: str) -> str | None:
        """Returns the value of `key`, ignoring case; the last one counts, as in Slurm."""
        found = [value for name, value in self.pairs if name.lower() == key.lower()]
        return found[-1] if found else None

    @property
    def first(self) -> str:
        """The first key in lower case, which is the kind of the line ("nodename", "partitionname", ...)."""
        return self.pairs[0][0].lower() if self.pairs else ""


def parse_lines(text: str) -> tuple[ConfLine, ...]:
    """Returns the logical lines of a text. Raises ValueError that names the first line with invalid syntax."""
    return tuple(_line(raw, number) for number, raw in _logical(text))


def format_lines(lines: Iterable[ConfLine]) -> str:
    """Returns the text of the lines, one physical line each; the inverse of `parse_lines`. Raises ValueError for a
    value that would end its line."""
    return "".join(_text(line) + "\n" for line in lines)


def conf_value(text: str) -> str:
    """Returns a value as it is written in the file, quoted if needed. Raises ValueError for a value that can't be
    written."""
    if _FORBIDDEN.search(text):
        raise ValueError(f"a Slurm value can't hold control characters, '#', '\"' or a backslash: {text!r}")
    if not text:
        raise ValueError("a Slurm value can't be empty")
    return f'"{text}"' if any(c.isspace() for c in text) else text


def settings(lines: Iterable[ConfLine]) -> dict[str, str]:
    """Returns the cluster-wide keys in lower case with their values; lines for nodes, partitions and similar are left
    out. Values of a repeated key, such as SlurmctldHost, are joined by commas."""
    found: dict[str, str] = {}
    for line in lines:
        if line.first not in GROUPED:
            for key, text in line.pairs:
                before = found.get(key.lower())
                found[key.lower()] = text if before is None else f"{before},{text}"
    return found


GROUPED = frozenset(
    ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "switchname", "blockname", "name")
)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of each logical line. A comment ends at its physical line; then continuations are joined."""
    joined, start = "", 0
    number = 0
    for number, raw in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        start = start or number
        mark = _COMMENT.search(raw)
        body, note = (raw, "") if mark is None else (raw[: mark.start()], raw[mark.start() :])
        body = body.rstrip("\r")
        if not note and body.endswith("\\"):
            joined += body[:-1]
            continue
        yield start, joined + body + note.rstrip("\r")
        joined, start = "", 0
    if joined:
        yield number, joined


def _line(raw: str, number: int) -> ConfLine:
    mark = _COMMENT.search(raw)
    body, comment = (raw, "") if mark is None else (raw[: mark.start()], raw[mark.start() + 1 :].strip())
    include = _INCLUDE.match(body)
    if include:
        return ConfLine(comment=comment, include=include[1])
    pairs: list[tuple[str, str]] = []
    position = 0
    end = len(body.rstrip())
    while position < end:
        match = _PAIR.match(body, position, end)
        if match is None:
            raise ValueError(f"line {number}: not key=value: {body[position:end].strip()[:60]!r}")
        key, operator, quoted, plain = match.groups()
        text = quoted if quoted is not None else plain
        pairs.append((key + operator, _ESCAPE.sub(r"\1", text)))
        position = match.end()
    return ConfLine(tuple(pairs), comment)


def _text(line: ConfLine) -> str:
    parts = []
    if line.include:
        conf_value(line.include)
        if any(c.isspace() for c in line.include):
            raise ValueError(f"an Include path can't hold blanks: {line.include!r}")
        parts.append(f"Include {line.include}")
    for key, text in line.pairs:
        if not _KEY.fullmatch(key.rstrip("-+*/")):
            raise ValueError(f"not a Slurm key: {key!r}")
        parts.append(f"{key}={conf_value(text)}")
    if line.comment:
        if not line.comment.isprintable():
            raise ValueError(f"a comment can't hold control characters: {line.comment!r}")
        parts.append(f"# {line.comment.strip()}")
    return " ".join(parts)
