"""Detects which machines began and ended between two readings. Pure: each reading carries its time and the machines that exist.

A second is billed once, whatever happens to the clock: where it was put back, nothing is noted until it has passed the
last look again. While no server looked, a machine that is there before and after was there between; one that is gone was
there until it was seen last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.domain.billing import MachineLifetime, NodeSpan, SpanKind


@dataclass(frozen=True, slots=True)
class MachineDiff:
    """What is to be written."""

    began: tuple[tuple[str, str], ...] = ()  # (machine, group)
    ended: tuple[MachineLifetime, ...] = ()  # with their end
    there: tuple[str, ...] = ()  # machines whose lives go on


@dataclass(frozen=True, slots=True)
class States:
    """The same for nodes' states."""

    began: tuple[NodeSpan, ...] = ()
    ended: tuple[NodeSpan, ...] = ()


def diff_machines(open_lives: Iterable[MachineLifetime], groups: Mapping[str, str], now: int) -> MachineDiff:
    """`groups`: machine -> its group, of those that are there now."""
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
    """`standing_by`: nodes that are held as spares now."""
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
