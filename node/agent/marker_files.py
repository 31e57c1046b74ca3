"""Marker files, and files of complete lines."""

from __future__ import annotations

import os

from agent.log import log


def touch_file(path: str) -> None:
    """Creates the file, or sets its modification time to now. A failure is logged."""
    try:
        with open(path, "a"):
            os.utime(path)
    except OSError as error:
        log(f"{path}: {error}")


def read_whole_lines(path: str) -> list[str]:
    """Returns the complete lines of a file that another thread or process may be writing; [] if there is no file."""
    try:
        with open(path, errors="replace") as file:
            return [line for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def whole_lines(path: str) -> list[str]:
    """Returns the complete lines of a file; [] if there is no file. A last line that a kill cut short is removed from
    the file, so that the next line begins on a line of its own. Only for the one thread that writes the file."""
    try:
        with open(path, "r+") as file:
            lines = file.readlines()
            if lines and not lines[-1].endswith("\n"):
                lines.pop()
                file.truncate(sum(len(line.encode()) for line in lines))
            return lines
    except FileNotFoundError:
        return []
