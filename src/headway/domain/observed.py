"""Observed facts: what the provider, the machines and Slurm report, without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.machine import Machine
from headway.domain.slurm.accounts import Accounts


@dataclass(frozen=True, slots=True)
class ObservedFile:
    digest: str  # sha256 of the content
    mode: int
    owner: str
    group: str
    ctime: float  # unix seconds


@dataclass(frozen=True, slots=True)
class ObservedUnit:
    active: bool
    enabled: bool
    started: float  # unix seconds, 0 when not running
    pid: int
    loaded: str  # digest of the files it was last told to read, "" after a boot


@dataclass(frozen=True)
class ObservedMachine:
    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    units: Mapping[str, ObservedUnit] = field(default_factory=dict)
    managed: tuple[str, ...] = ()  # paths Headway wrote before
    dirs: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()  # packages that were asked for and are not installed
    hostname: str = ""
    parts: str = ""  # digest of Headway's own parts that were made here
    sessions: tuple[str, ...] = ()  # departed users who still have processes here


@dataclass(frozen=True)
class Observed:
    """`seen` lacks machines that do not run; `unreachable` says why one that runs does not answer."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    seen: Mapping[str, ObservedMachine] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    accounts: Accounts | None = None  # None: the accounting database does not answer (yet)
    texts: Mapping[str, str] = field(default_factory=dict)  # current text of a head's Slurm files
    datasets: frozenset[str] = frozenset()  # names attached now
    jobs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # on nodes that are to go
    aborted: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # by partition or node: jobs that slurm.conf ends
    unasked: str = ""  # why nobody could say which jobs slurm.conf ends, where it ends any
    replaced: frozenset[str] = frozenset()  # places for which the inventory names another machine than the one there
    other_slurm: Mapping[str, str] = field(default_factory=dict)  # heads of an image with another Slurm, and which
    of_earlier_image: tuple[str, ...] = ()  # machines made from a node image whose inputs have changed since


NOT_OBSERVED = ObservedMachine()
