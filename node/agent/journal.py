"""Shared by the agent's modules: the log, marker files, and files of complete lines."""

from __future__ import annotations

import os
import sys
import time


def log(text: str) -> None:
    """Writes a line to standard error, which is the journal; at most one line a second, the others are dropped. A
    failure may repeat very often."""
    now = time.monotonic()
    if now - _said[0] >= 1:
        _said[0] = now
        print(text, file=sys.stderr, flush=True)


_said = [-1.0]


def touch_file(path: str) -> None:
    """Creates the file, or sets its modification time to now. A failure is logged."""
    try:
        with open(path, "a"):
            os.utime(path)
    except OSError as error:
        log(f"{path}: {error}")


def whole_lines(path: str) -> list[str]:
    """Returns the complete lines of a file; [] if there is no file. A last line that a kill cut short is removed from
    the file, so that the next line begins on a line of its own."""
    try:
        with open(path, "r+") as file:
            lines = file.readlines()
            if lines and not lines[-1].endswith("\n"):
                lines.pop()
                file.truncate(sum(len(line.encode()) for line in lines))
            return lines
    except FileNotFoundError:
        return []
