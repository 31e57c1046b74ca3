"""Reservations of the cluster file in Slurm: reads them with scontrol, and makes, changes and removes them.
`headway.changes.reservation_changes` computes the changes. Not here: those of spares and of nodes under test
(`headway.slurm.node_reservations`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import expand
from headway.domain.slurm.nodes_and_jobs import OURS
from headway.domain.slurm.reservations import ObservedReservation, ObservedReservations
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S
from headway.transport.ssh import Remote

# Names of the reservations that an apply has made: Slurm 22.05 has no comments on reservations.
MADE_FILE = "/etc/headway/reservations"
_MARK = "=== reservations"
_READ = f"""\
cat {MADE_FILE} 2>/dev/null
date '+{_MARK} %Y-%m-%dT%H:%M:%S'
exec scontrol --oneliner show reservation
"""
_WRITE = f"""\
umask 022; mkdir -p "$(dirname {MADE_FILE})"
printf '%s\\n' "$@" >{MADE_FILE}.new && mv {MADE_FILE}.new {MADE_FILE}
"""
_PAIR = re.compile(r"(\w+)=(\S*)")


async def read_reservations(connections: Remote, head: Machine) -> ObservedReservations:
    """Returns the reservations, without those that Headway keeps for spares, flaky nodes and tests. Raises CommandFailed or
    Unreachable if slurmctld does not answer."""
    ran = await connections.remote(head, ["sh", "-c", _READ], timeout_s=TIMEOUT_S)
    if _MARK not in ran.stdout:
        raise CommandFailed(["date"], 0, "it printed no time", where=head.name)
    return parse_reservations(ran.stdout)


def parse_reservations(text: str) -> ObservedReservations:
    """Returns the reservations from the output of the three commands."""
    made, _, rest = text.rpartition(_MARK)
    clock, _, shown = rest.partition("\n")
    now = datetime.fromisoformat(clock.strip())
    return ObservedReservations(tuple(read_rows(shown)), frozenset(made.split()), now)


def read_rows(shown: str) -> Iterator[ObservedReservation]:
    """Yields the reservations of `scontrol --oneliner show reservation` that are not Headway's own."""
    for line in shown.splitlines():
        pairs = dict(_PAIR.findall(line))
        name = pairs.get("ReservationName", "")
        if not name or name.startswith(OURS):
            continue
        yield ObservedReservation(
            name=name,
            start=datetime.fromisoformat(pairs["StartTime"]),
            end=datetime.fromisoformat(pairs["EndTime"]),
            nodes=tuple(expand(_given(pairs, "Nodes"))) if _given(pairs, "Nodes") else (),
            node_count=int(pairs.get("NodeCnt", "0")),
            partition=_given(pairs, "PartitionName"),
            users=_names(pairs, "Users"),
            accounts=_names(pairs, "Accounts"),
            flags=frozenset(_names(pairs, "Flags")),
        )


async def apply_reservation_change(connections: Remote, head: Machine, data: Mapping[str, Any]) -> None:
    """Carries out one change. Raises CommandFailed, with Slurm's reason, or Unreachable."""
    kind = [] if data["verb"] == "delete" else ["reservation"]
    await connections.remote(head, ["scontrol", data["verb"], *kind, *data["words"]], timeout_s=TIMEOUT_S)


async def record_made(connections: Remote, head: Machine, names: Sequence[str]) -> None:
    """Records on the head which reservations an apply has made."""
    await connections.remote(head, ["sh", "-c", _WRITE, "sh", *names], timeout_s=TIMEOUT_S)


async def head_local_time(connections: Remote, head: Machine, unix_s: int) -> datetime:
    """Returns this moment in the time zone of the head, without the zone: scontrol takes and prints such times."""
    ran = await connections.remote(head, ["date", f"--date=@{unix_s}", "+%Y-%m-%dT%H:%M:%S"], timeout_s=TIMEOUT_S)
    return datetime.fromisoformat(ran.stdout.strip())


def creation_argv(words: Sequence[str]) -> list[str]:
    """Returns the command that makes a reservation."""
    return ["scontrol", "create", "reservation", *words]


def _given(pairs: Mapping[str, str], key: str) -> str:
    value = pairs.get(key, "")
    return "" if value == "(null)" else value


def _names(pairs: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(sorted(filter(None, _given(pairs, key).split(","))))
