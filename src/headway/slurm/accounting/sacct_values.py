"""Parsers of the values that sacct and sacctmgr print, shared by the readers of jobs and of usage."""

from __future__ import annotations

from headway.slurm.adapters.base import parse_hosts


def parse_integer(value: str) -> int:
    """Returns a number; 0 for an empty value."""
    return int(value) if value.isdigit() else 0


def parse_unix_time(value: str) -> int:
    """Returns unix seconds; 0 for "Unknown" and "None"."""
    return int(value) if value.isdigit() else 0


def parse_time_limit_s(value: str) -> int | None:
    """Returns TimelimitRaw, which is in minutes, in seconds; None for "UNLIMITED" and "Partition_Limit"."""
    return int(value) * 60 if value.isdigit() else None


def parse_nodes(value: str) -> tuple[str, ...]:
    """Returns the names of the nodes; () for "None assigned"."""
    return () if value == "None assigned" else parse_hosts(value)


def parse_state(value: str) -> str:
    """Returns the state: "CANCELLED" for "CANCELLED by 20000"."""
    return value.split(" ")[0]
