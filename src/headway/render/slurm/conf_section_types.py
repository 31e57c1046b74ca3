"""A setting of slurm.conf, and the sections that hold them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster-wide key and the reason for its value ("" if it needs no explanation)."""

    key: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings under one heading."""

    title: str
    settings: tuple[Setting, ...]
