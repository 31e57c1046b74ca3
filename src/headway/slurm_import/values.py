"""Values of slurm.conf and sacctmgr in the forms of the cluster file."""

from __future__ import annotations

import re

from headway.domain.durations import split_duration
from headway.domain.slurm.hostlist import expand
from headway.validation.field_types import MOST_NODES
from headway.validation.times_and_sizes import parse_time

ENDLESS = ("infinite", "unlimited", "-1")


def time_text(value: str) -> str | None:
    """Returns a time limit as the cluster file writes it: "1-00:00:00", "infinite"; None if it is no time."""
    if value.lower() in ENDLESS:
        return "infinite"
    try:
        seconds = parse_time(value)
    except ValueError:
        return None
    if not seconds:
        return None
    days, hour, minute, second = split_duration(seconds)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def node_names(text: str) -> list[str]:
    """Returns the nodes of a list such as n[1-3]; [] if it is none."""
    try:
        return expand(text.replace(" ", ""), MOST_NODES)
    except ValueError:
        return []


LARGEST_LIMIT = 1_000_000  # of jobs and GPUs in a cluster file


def whole_number(value: str) -> int | None:
    """Returns a number of sacctmgr that is a limit; None for none ("", "-1", "NONE"), and for more than any cluster has."""
    found = int(value) if re.fullmatch(r"[0-9]{1,12}", value.strip()) else None
    return found if found is not None and found <= LARGEST_LIMIT else None


def tres(value: str) -> dict[str, int]:
    """Returns resource -> limit: "cpu=64,gres/gpu=8,mem=1T" gives {"cpu": 64, "gres/gpu": 8, "mem": 1048576}. Memory is in
    MiB."""
    found = {}
    for part in value.split(","):
        name, mark, number = part.strip().partition("=")
        if mark and re.fullmatch(r"[0-9]{1,15}", number) and (int(number) <= LARGEST_LIMIT or name != "gres/gpu"):
            found[name.lower()] = int(number)
        elif name.lower() == "mem" and (
            size := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMGTP])B?", number.strip(), re.IGNORECASE)
        ):
            found["mem"] = int(float(size[1]) * 1024 ** "KMGTP".index(size[2].upper())) // 1024
    return found


def memory_text(mib: int) -> str:
    """Returns an amount of memory as the cluster file writes it: the largest unit in which it is a whole number."""
    units = ["MiB", "GiB", "TiB", "PiB"]
    while mib % 1024 == 0 and len(units) > 1:
        mib, units = mib // 1024, units[1:]
    return f"{mib} {units[0]}"


def holds_below(version: str) -> bool:
    """Returns whether a partition's AllowAccounts and DenyAccounts hold for the accounts below too, as since Slurm 23.11.
    `version`: text with Slurm's version; without one the answer is yes."""
    found = re.search(r"([0-9]{1,3})\.([0-9]{1,3})", version)
    return found is None or (int(found[1]), int(found[2])) >= (23, 11)


def same_value(one: str, other: str) -> bool:
    """Returns whether two values of a key mean the same to Slurm: case, blanks, order of lists, forms of times and yes/no."""
    return _plain(one) == _plain(other)


_WORDS = {"true": "yes", "false": "no", "1": "yes", "0": "no", "none": "", "(null)": "", "n/a": ""}


def _plain(text: str) -> object:
    text = re.sub(r"\s+", "", text).lower()
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"[0-9]{1,5}-[0-9:]+|[0-9]+:[0-9:]+", text):
        try:
            return parse_time(text)
        except ValueError:
            return text
    return frozenset(text.split(","))
