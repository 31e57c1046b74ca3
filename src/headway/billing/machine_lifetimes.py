"""Detects which machines began and ended between two readings. Pure: a reading has its time and the machines that
exist.

A second is billed once, even if the clock changes. After the clock was set back, nothing is recorded until it has
passed the previous reading again. If no server was running for a while, a machine that exists before and after counts
as existing in between; a machine that is gone counts until it was last seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.domain.billing.ledger import MachineLifetime, NodeSpan, SpanKind


@dataclass(frozen=True, slots=True)
class MachineDiff:
    """The changes to write to the store."""

    began: tuple[tuple[str, str], ...] = ()  # (machine, group)
    ended: tuple[MachineLifetime, ...] = ()  # with their end time
    there: tuple[str, ...] = ()  # machines that still exist


@dataclass(frozen=True, slots=True)
class States:
    """The changes to node states to write to the store."""

    began: tuple[NodeSpan, ...] = ()
    ended: tuple[NodeSpan, ...] = ()


def diff_machines(open_lives: Iterable[MachineLifetime], groups: Mapping[str, str], now: int) -> MachineDiff:
    """Compares the open machine lifetimes with the machines that exist now. `groups` maps each existing machine to its
    group. A machine that moved to another group ends one lifetime and begins another. Returns no changes if the clock
    was set back."""
    known = {life.machine: life for life in open_lives}
    if any(life.seen > now for life in known.values()):
        return MachineDiff()
    moved = [name for name, life in known.items() if name in groups and groups[name] != life.group]
    ended = [name for name in known if name not in groups]
    lives = [
        MachineLifetime(
            name, known[name].group, known[name].began, max(known[name].began, known[name].seen), known[name].seen
        )
        for name in sorted((*ended, *moved))
    ]
    began = tuple((name, group) for name, group in sorted(groups.items()) if name not in known or name in moved)
    return MachineDiff(began, tuple(lives), tuple(sorted(known.keys() & groups.keys() - set(moved))))


def diff_spares(open_spans: Iterable[NodeSpan], standing_by: Iterable[str], now: int) -> States:
    """Compares the open spare spans with the nodes that are spares now (`standing_by`). Returns no changes if the
    clock was set back."""
    known = {span.node: span for span in open_spans if span.kind is SpanKind.SPARE}
    if any(span.began > now for span in known.values()):
        return States()
    here = set(standing_by)
    return States(
        tuple(NodeSpan(node, SpanKind.SPARE, now, 0) for node in sorted(here - known.keys())),
        tuple(
            NodeSpan(node, SpanKind.SPARE, span.began, now, span.reason)
            for node, span in sorted(known.items())
            if node not in here
        ),
    )
