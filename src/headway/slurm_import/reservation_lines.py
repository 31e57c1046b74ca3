"""Reservations of a site, from `scontrol --oneliner show reservation`, as reservations of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, get_args

from headway.clusterfile.models.scheduling.reservations import ReservationFlag
from headway.slurm_import import site_names
from headway.slurm_import.nodes.node_groups import NodeGroup
from headway.slurm_import.values import node_names, time_text
from headway.slurm_import.verdicts import Item, Ledger

_PAIR = re.compile(r"(\w+)=(\S*)")
_NONE = ("", "(null)")
_REPEATS = ("HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND")
_FLAGS = get_args(ReservationFlag)
_DERIVED = ("SPEC_NODES", "ALL_NODES", "PART_NODES")  # from which nodes were asked for
_MOST = 100
_LONGEST = timedelta(days=3650)


@dataclass
class SiteReservation:
    """A reservation of the site: its items by name in lower case."""

    name: str
    keys: dict[str, Item] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """Returns the value of a key; "" without it."""
        value = self.keys[name].value if name in self.keys else ""
        return "" if value in _NONE else value

    def names(self, key: str) -> list[str]:
        """Returns the names of a list."""
        return [name for name in self.value(key).split(",") if name]


@dataclass(frozen=True)
class ReservationSurroundings:
    """What the reservations of the cluster file depend on."""

    groups: Sequence[NodeGroup]
    all_nodes: frozenset[str]
    teams: Mapping[str, str]  # account of the site -> team
    users: frozenset[str]


def is_reservation_table(text: str) -> bool:
    """Returns whether a text is the output of `scontrol --oneliner show reservation`."""
    return text.lstrip().startswith("ReservationName=")


def read_reservations(path: str, text: str, ledger: Ledger) -> list[SiteReservation]:
    """Returns the reservations of the table, with an item for each of their keys."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        pairs = _PAIR.findall(line)
        if not pairs:
            continue
        name = dict(pairs).get("ReservationName", "")
        one = SiteReservation(name)
        for key, value in dict(pairs).items():
            context = "" if key == "ReservationName" else f"ReservationName={name}"
            one.keys[key.lower()] = ledger.read(Item(path, number, key, value, context))
        found.append(one)
    return found


def make_reservations(
    found: Sequence[SiteReservation], around: ReservationSurroundings, ledger: Ledger
) -> dict[str, dict[str, Any]]:
    """Returns the section `reservations`. Decides on every key."""
    names, section = site_names.reservation_names(), dict[str, dict[str, Any]]()
    for one in found:
        why, instead = _not_carried(one, around, len(section))
        if why:
            for item in one.keys.values():
                ledger.dropped(item, why, instead)
            continue
        name = names.of(one.name)
        section[name] = _Fields(one, f"reservations.{name}", around, ledger).make()
    return section


def _not_carried(one: SiteReservation, around: ReservationSurroundings, count: int) -> tuple[str, str]:
    """Returns why a reservation as a whole is not carried, and what to do; "" if it is."""
    times = [_time(one.value(key)) for key in ("starttime", "endtime")]
    if None in times:
        return "its times can't be read", "give it under reservations"
    if "MAINT" not in one.names("flags") and not _members(one, around):
        return "no user or team of the file may use it", "give it under reservations, with users, teams or maintenance"
    if count >= _MOST:
        return f"a cluster file has at most {_MOST} reservations", "leave out those that are over"
    return "", ""


def _members(one: SiteReservation, around: ReservationSurroundings) -> list[str]:
    users = [name for name in one.names("users") if name in around.users]
    return users + [name for name in one.names("accounts") if name in around.teams]


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is None and 2000 <= found.year < 2101 else None


class _Fields:
    """The fields of one reservation, and the verdicts on its keys."""

    def __init__(self, one: SiteReservation, place: str, around: ReservationSurroundings, ledger: Ledger) -> None:
        self._one, self._place, self._around, self._ledger = one, place, around, ledger
        self._fields: dict[str, Any] = {}

    def make(self) -> dict[str, Any]:
        """Returns the fields."""
        for key, item in self._one.keys.items():
            self._decide(key, item)
        return self._fields

    def _carry(self, item: Item, name: str, value: object, why: str = "") -> None:
        self._fields[name] = value
        self._ledger.carried(item, f"{self._place}.{name}", why)

    def _decide(self, key: str, item: Item) -> None:
        ledger = self._ledger
        match key:
            case "reservationname":
                ledger.carried(item, self._place)
            case "starttime":
                start = _time(item.value)
                self._carry(item, "start", f"{start:%Y-%m-%dT%H:%M:%S}")
            case "endtime":
                self._length(item)
            case "nodes":
                self._nodes(item)
            case "flags":
                self._flags(item)
            case "users" | "accounts" if item.value not in _NONE:
                self._who(key, item)
            case "partitionname":
                ledger.same(item, "its nodes are those of `nodes` or `groups`")
            case "duration" | "nodecnt" | "corecnt" | "tres" | "state":
                ledger.same(item, "follows from its times and nodes")
            case _ if item.value in _NONE:
                ledger.same(item)
            case _:
                ledger.dropped(
                    item, "a reservation of a cluster file has no such field", "make it with scontrol by hand"
                )

    def _length(self, item: Item) -> None:
        start, end = _time(self._one.value("starttime")), _time(item.value)
        assert start is not None
        assert end is not None
        text = (
            "infinite" if end - start > _LONGEST else time_text(str(max(1, int((end - start).total_seconds() // 60))))
        )
        self._carry(item, "duration", text)

    def _nodes(self, item: Item) -> None:
        nodes = set(node_names(item.value)) & self._around.all_nodes
        covered = [group for group in self._around.groups if nodes.issuperset(node.name for node in group.nodes)]
        if nodes == self._around.all_nodes:
            self._ledger.same(item, "a reservation has all nodes")
        elif nodes and nodes == {node.name for group in covered for node in group.nodes}:
            self._carry(item, "groups", [group.name for group in covered])
        else:
            self._fields["nodes"] = max(1, len(nodes))
            why = "nodes have names of slots here: Slurm chooses as many nodes"
            self._ledger.dropped(item, why, f"list names of slots in {self._place}.nodes")

    def _flags(self, item: Item) -> None:
        given = self._one.names("flags")
        repeats = [flag.lower() for flag in given if flag in _REPEATS]
        kept = [flag for flag in given if flag in _FLAGS]
        if "MAINT" in given:
            self._fields["maintenance"] = True
            kept = [flag for flag in kept if flag != "IGNORE_JOBS"]
        if repeats:
            self._fields["repeat"] = repeats[0]
        if kept:
            self._fields["flags"] = kept
        rest = [flag for flag in given if flag not in ("MAINT", *_REPEATS, *_FLAGS, *_DERIVED)]
        if rest:
            self._ledger.dropped(
                item, f"a cluster file has no flag {', '.join(rest)}", "change it with scontrol by hand"
            )
        else:
            self._ledger.carried(item, self._place)

    def _who(self, key: str, item: Item) -> None:
        known = self._around.users if key == "users" else self._around.teams
        names = self._one.names(key)
        there = [name for name in names if name in known]
        field_name = "users" if key == "users" else "teams"
        if there:
            self._fields[field_name] = there if key == "users" else [self._around.teams[name] for name in there]
        lost = [name for name in names if name not in known and name != "root"]
        if lost:
            why = f"not in the file: {', '.join(lost[:5])}"
            self._ledger.dropped(item, why, f"give {self._place}.{field_name}")
        elif there:
            self._ledger.carried(item, f"{self._place}.{field_name}")
        else:
            self._ledger.same(item, "maintenance is for root")
