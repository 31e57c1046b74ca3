"""Shared by the agent's modules: the log, mark files, and files of whole lines."""

from __future__ import annotations

import os
import sys
import time


def log(text: str) -> None:
    """To the journal, a line a second at most: what goes wrong may go wrong very often."""
    now = time.monotonic()
    if now - _said[0] >= 1:
        _said[0] = now
        print(text, file=sys.stderr, flush=True)


_said = [-1.0]


def touch_file(path: str) -> None:
    try:
        with open(path, "a"):
            os.utime(path)
    except OSError as error:
        log(f"{path}: {error}")


def whole_lines(path: str) -> list[str]:
    """A line that a kill cut short is left out; the next is put after a line end of its own."""
    try:
        with open(path, "r+") as file:
            lines = file.readlines()
            if lines and not lines[-1].endswith("\n"):
                lines.pop()
                file.truncate(sum(len(line.encode()) for line in lines))
            return lines
    except FileNotFoundError:
        return []
