"""Observed facts: what the provider, the machines and Slurm report, without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.machines.machine import Machine
from headway.domain.slurm.accounts import Accounts
from headway.domain.slurm.reservations import ObservedReservations
from headway.domain.storage.quotas import ObservedQuota


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """A file on a machine."""

    digest: str  # sha256 of the content
    mode: int
    owner: str
    group: str
    ctime: float  # unix seconds


@dataclass(frozen=True, slots=True)
class ObservedUnit:
    """A systemd unit on a machine."""

    active: bool
    enabled: bool
    started: float  # unix seconds, 0 when not running
    pid: int
    loaded: str  # digest of the files at its last start or reload, "" after a boot


@dataclass(frozen=True)
class ObservedMachine:
    """State of one machine, as read over SSH."""

    files: Mapping[str, ObservedFile] = field(default_factory=dict)
    units: Mapping[str, ObservedUnit] = field(default_factory=dict)
    managed: tuple[str, ...] = ()  # paths that Headway wrote before
    dirs: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()  # packages that Headway wants and that are not installed
    hostname: str = ""
    parts: str = ""  # digest of Headway's own parts that were built on this machine
    sessions: tuple[str, ...] = ()  # departed users who still have processes on this machine
    quotas: Mapping[str, ObservedQuota] = field(default_factory=dict)  # by volume, on the first head


@dataclass(frozen=True)
class Observed:
    """State of a cluster. `seen` lacks machines that do not run; `unreachable` gives the reason why a running machine
    does not answer."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    seen: Mapping[str, ObservedMachine] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    accounts: Accounts | None = None  # None: the accounting database does not answer (yet)
    reservations: ObservedReservations | None = None  # None: slurmctld does not answer (yet)
    texts: Mapping[str, str] = field(default_factory=dict)  # current text of the Slurm files of a head
    datasets: frozenset[str] = frozenset()  # names of datasets that are mounted now
    jobs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by node that will be removed: its jobs
    aborted: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # by partition or node: jobs that the new slurm.conf ends
    unasked: str = ""  # why it is not known which jobs the new slurm.conf ends, if it would end any
    replaced: frozenset[str] = frozenset()  # slots for which the inventory names another machine than the present one
    # Heads whose image has another Slurm version -> that version
    other_slurm: Mapping[str, str] = field(default_factory=dict)
    of_earlier_image: tuple[str, ...] = ()  # machines whose node image was built from inputs that have since changed


NOT_OBSERVED = ObservedMachine()
